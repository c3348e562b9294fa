//! ByT5: a text is its bytes (Xue et al. 2022).
//!
//! `X </s>`; a byte's id is its value after the special tokens `<pad>`, `</s>`, `<unk>`.
//!
//! Source: transformers 4.57.6, `ByT5Tokenizer`.

use super::{Classic, Subwords};
use crate::error::Result;
use crate::folder::settings::{Settings, Special, Specials};

const SPECIALS: [&str; 3] = ["<pad>", "</s>", "<unk>"];
/// Number of sentinels if the folder does not set it.
const N_SENTINELS: usize = 125;

pub(crate) struct ByT5 {
    /// The special tokens, followed by each byte as the character with its number.
    pieces: Vec<String>,
}

impl ByT5 {
    /// Reads a folder's settings; also returns the special tokens.
    pub(crate) fn open(settings: &Settings) -> Result<(Classic, Specials)> {
        let defaults = [("pad_token", "<pad>"), ("eos_token", "</s>"), ("unk_token", "<unk>")];
        let mut specials = settings.specials(&defaults, |_, text| Special::Text(text))?;
        if specials.additional.is_empty() {
            let count = settings.count("extra_ids")?.unwrap_or(N_SENTINELS);
            specials.additional =
                (0..count).map(|index| Special::Text(format!("<extra_id_{index}>"))).collect();
        }
        let bytes = (0..=u8::MAX).map(|byte| char::from(byte).to_string());
        let subwords =
            Self { pieces: SPECIALS.map(str::to_owned).into_iter().chain(bytes).collect() };
        Ok((Classic::new(Box::new(subwords), &settings.added, &specials), specials))
    }
}

impl Subwords for ByT5 {
    fn cut(&self, text: &str) -> Vec<String> {
        text.bytes().map(|byte| char::from(byte).to_string()).collect()
    }

    fn join(&self, pieces: &[&str]) -> String {
        let byte = |piece: &&str| piece.chars().next().and_then(|char| u8::try_from(char).ok());
        let bytes: Vec<u8> = pieces.iter().filter_map(byte).collect();
        // As Python does with errors="ignore".
        bytes.utf8_chunks().map(|chunk| chunk.valid()).collect()
    }

    fn id(&self, piece: &str) -> u32 {
        let mut chars = piece.chars();
        match (chars.next().and_then(|char| u8::try_from(char).ok()), chars.next()) {
            (Some(byte), None) => u32::from(byte) + SPECIALS.len() as u32,
            _ => SPECIALS.iter().position(|special| *special == piece).unwrap_or(2) as u32,
        }
    }

    fn piece(&self, id: u32) -> Option<&str> {
        self.pieces.get(id as usize).map(String::as_str)
    }

    fn n_pieces(&self) -> usize {
        self.pieces.len()
    }
}
