//! Training of a corpus's tokenizers.

use cognate_text::{Tokenizer, TokenizerTrainer, TrainedTokenizer, TrainingSettings};

use crate::batches::order::{Purpose, shuffle};
use crate::corpus::{BlockReader, Corpus};
use crate::error::Result;

/// Settings of the training.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenizerChoice {
    /// Algorithm and size.
    pub training: TrainingSettings,
    /// Whether source and target have a vocabulary of `vocab_size` each.
    pub separate: bool,
    /// Maximum number of pairs to train on.
    pub sample: u64,
    /// Seed of the sample.
    pub seed: u64,
}

/// The result of [`train_tokenizers`].
#[derive(Clone, Debug)]
pub struct Tokenizers {
    /// The tokenizer of both languages, or of the source.
    pub source: TrainedTokenizer,
    /// The tokenizer of the target, if it is separate.
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

    /// Names and texts of the files of a Hugging Face folder; `max_length` is the model's maximum
    /// number of tokens.
    pub fn files(&self, max_length: usize) -> Vec<(&'static str, String)> {
        self.source.files(self.target.as_ref(), max_length)
    }
}

/// Trains on the pairs of a corpus, or on a sample of its blocks. Deterministic.
///
/// # Errors
/// If a file changed, or the text has more characters than the vocabulary.
pub fn train_tokenizers(corpus: &Corpus, choice: &TokenizerChoice) -> Result<Tokenizers> {
    let mut blocks: Vec<u64> = (0..corpus.n_blocks()).collect();
    if choice.sample < corpus.n_pairs() {
        shuffle(&mut blocks, Purpose::Sample, choice.seed, 0, 0);
    }
    let mut source = TokenizerTrainer::new(choice.training.clone())?;
    let mut target =
        choice.separate.then(|| TokenizerTrainer::new(choice.training.clone())).transpose()?;
    let mut reader = BlockReader::open(corpus)?;
    let mut n_pairs = 0;
    for block in blocks {
        for pair in reader.read(corpus, block)?.into_iter().take((choice.sample - n_pairs) as usize)
        {
            n_pairs += 1;
            source.add(&pair.source)?;
            target.as_mut().unwrap_or(&mut source).add(&pair.target)?;
        }
        if n_pairs >= choice.sample {
            break;
        }
    }
    Ok(Tokenizers {
        source: source.train()?,
        target: target.map(TokenizerTrainer::train).transpose()?,
    })
}
