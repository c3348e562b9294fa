//! The bundled sentences for verification, tuning and comparison.

use cognate_folder::has_tokenizer;
use cognate_generate::Settings;
use cognate_model::{Config, Front};
use cognate_pipeline::{
    Error, ErrorKind, Languages, Notice, Result, decode_into, open_tokenizer_if_readable,
};
use cognate_text::Tokenizer;
use std::path::Path;

/// The seed of random batches.
pub(crate) const SEED: u64 = 1;

/// The sentences of a verification.
pub(crate) const VERIFICATION: [&str; 4] = [
    "A man is riding a bicycle.",
    "Two dogs are playing in the snow.",
    "A group of people are standing in front of a large building while a woman takes a picture of them.",
    "Hello!",
];

/// The tuning sentences of an export in f16, which no report is based on.
pub(crate) const TUNING: [&str; 4] = [
    "The weather is nice today.",
    "A young girl in a red dress is eating an apple.",
    "Where is the nearest train station?",
    "She bought three books and a pen for twelve euros.",
];

/// More sentences of a comparison of precisions.
pub(crate) const COMPARISON: [&str; 16] = [
    "The old bridge was closed for repairs last winter.",
    "Children are running through a field of yellow flowers.",
    "I do not know what he means.",
    "The meeting begins at half past nine on Monday.",
    "A black cat sleeps on the roof of a parked car.",
    "If it rains tomorrow, we will stay at home and play cards.",
    "Two men in orange jackets are repairing the road.",
    "Please close the window before you leave the house.",
    "The doctor told him to drink more water and to sleep longer.",
    "A woman with a blue umbrella is waiting for the bus.",
    "Maria and Peter have lived in London since 2010.",
    "The child laughed because the dog had stolen the hat.",
    "This soup is too hot; wait a few minutes.",
    "Several boats lie in the harbour while the sun goes down behind the mountains.",
    "Why did nobody answer the telephone?",
    "Thank you very much for your help!",
];

/// Sentences as ids.
pub(crate) struct Encoded {
    pub(crate) verification: Vec<Vec<i64>>,
    pub(crate) tuning: Vec<Vec<i64>>,
    pub(crate) notices: Vec<Notice>,
}

/// The sentences that a model with a tokenizer in `folder` can read, none without a tokenizer. Sets
/// the target language in `settings`.
pub(crate) fn encode(
    folder: &Path,
    config: &Config,
    languages: &Languages,
    settings: &mut Settings,
) -> Result<Encoded> {
    let (tokenizer, notice) = tokenizer_in(folder, config)?;
    let notices = notice.into_iter().collect();
    let Some(tokenizer) = tokenizer else {
        if languages.is_chosen() {
            return Err(Error::new(
                ErrorKind::Options,
                format!("{}: has no tokenizer, so languages cannot be set", folder.display()),
            ));
        }
        return Ok(Encoded { verification: Vec::new(), tuning: Vec::new(), notices });
    };
    let tokenizer = languages.choose(tokenizer, config)?;
    decode_into(&tokenizer, settings);
    Ok(Encoded {
        verification: readable(&VERIFICATION, &tokenizer, config)?,
        tuning: readable(&TUNING, &tokenizer, config)?,
        notices,
    })
}

/// As [`encode`], for an encoder alone.
pub(crate) fn encode_alone(folder: &Path, config: &Config) -> Result<Encoded> {
    let (tokenizer, notice) = tokenizer_in(folder, config)?;
    let read = |texts| {
        tokenizer.as_ref().map_or(Ok(Vec::new()), |tokenizer| readable(texts, tokenizer, config))
    };
    Ok(Encoded {
        verification: read(&VERIFICATION)?,
        tuning: read(&TUNING)?,
        notices: notice.into_iter().collect(),
    })
}

fn tokenizer_in(folder: &Path, config: &Config) -> Result<(Option<Tokenizer>, Option<Notice>)> {
    match config.front == Front::Tokens && has_tokenizer(folder) {
        true => open_tokenizer_if_readable(folder, config, "no sentences are compared"),
        false => Ok((None, None)),
    }
}

fn readable(texts: &[&str], tokenizer: &Tokenizer, config: &Config) -> Result<Vec<Vec<i64>>> {
    let sources = texts
        .iter()
        .map(|text| tokenizer.encode(text))
        .collect::<cognate_text::Result<Vec<_>>>()?;
    let is_token = |id: &i64| usize::try_from(*id).is_ok_and(|id| id < config.source_vocab);
    let fits = |ids: &Vec<i64>| {
        !ids.is_empty()
            && config.max_positions.is_none_or(|limit| ids.len() <= limit)
            && ids.iter().all(is_token)
    };
    Ok(sources.into_iter().filter(fits).collect())
}
