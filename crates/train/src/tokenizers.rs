//! Tokenizers of a corpus, trained on the spot.

use cognate_text::{Tokenizer, TokenizerTrainer, TrainedTokenizer, TrainingSettings};

use crate::batches::order::{Purpose, shuffle};
use crate::corpus::{BlockReader, Corpus};
use crate::error::Result;

/// Which vocabularies to train, on how much text.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerChoice {
    /// How pieces are found, and how many.
    pub training: TrainingSettings,
    /// Whether source and target have a vocabulary of `vocab_size` each.
    pub separate: bool,
    /// Pairs that are looked at, at most; more than the corpus has for all of it.
    pub sample: u64,
    /// Chooses them.
    pub seed: u64,
}

/// What [`train_tokenizers`] gives.
#[derive(Clone, Debug)]
pub struct Tokenizers {
    /// Of both languages, or of the source.
    pub source: TrainedTokenizer,
    /// Of the target, where it has its own.
    pub target: Option<TrainedTokenizer>,
}

impl Tokenizers {
    /// One tokenizer for both sides.
    pub fn tokenizer(&self) -> Tokenizer {
        let source = self.source.tokenizer().clone();
        match &self.target {
            Some(target) => source.with_target(target.tokenizer()),
            None => source,
        }
    }

    /// The files of a Hugging Face folder, names and texts; `max_length` is the model's longest input in tokens.
    pub fn files(&self, max_length: usize) -> Vec<(&'static str, String)> {
        self.source.files(self.target.as_ref(), max_length)
    }
}

/// Trains on the kept pairs of a corpus, or on a sample of its blocks. The same corpus and choice give the same tokenizers.
///
/// # Errors
/// If a file changed, or the text has more characters than pieces are wanted.
pub fn train_tokenizers(corpus: &Corpus, choice: &TokenizerChoice) -> Result<Tokenizers> {
    let mut blocks: Vec<u64> = (0..corpus.n_blocks()).collect();
    if choice.sample < corpus.n_pairs() {
        shuffle(&mut blocks, Purpose::Sample, choice.seed, 0, 0);
    }
    let mut source = TokenizerTrainer::new(choice.training.clone())?;
    let mut target = choice.separate.then(|| TokenizerTrainer::new(choice.training.clone())).transpose()?;
    let mut reader = BlockReader::open(corpus)?;
    let mut n_pairs = 0;
    for block in blocks {
        for pair in reader.read(corpus, block)?.into_iter().take((choice.sample - n_pairs) as usize) {
            n_pairs += 1;
            source.add(&pair.source)?;
            target.as_mut().unwrap_or(&mut source).add(&pair.target)?;
        }
        if n_pairs >= choice.sample {
            break;
        }
    }
    Ok(Tokenizers { source: source.train()?, target: target.map(TokenizerTrainer::train).transpose()? })
}
