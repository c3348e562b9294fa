//! Windows: the token ids of the sentences that are sorted by length together.

use std::sync::Arc;

use cognate_text::{SegmentationSampler, Tokenizer};

use super::encode::{Encoded, encode};
use super::order::{Purpose, random, shuffle};
use super::{BatchSettings, Position};
use crate::corpus::{BlockReader, Corpus};
use crate::error::Result;
use crate::left_out::LeftOut;
use crate::prefetch::Stop;

/// Blocks of a window: 65,536 lines, about 20 MB of ids in sentences of 30 tokens a side.
const WINDOW_BLOCKS: usize = 1 << 10;

/// The pairs of some blocks, in the corpus's order.
#[derive(Clone, Debug)]
pub(super) struct Window {
    pub(super) epoch: u64,
    pub(super) index: u64,
    /// Whether the epoch ends with it.
    pub(super) is_last: bool,
    pub(super) pairs: Arc<Vec<Arc<Encoded>>>,
    pub(super) left_out: LeftOut,
}

/// An endless iterator of windows, epoch after epoch.
pub(super) struct Windows {
    corpus: Arc<Corpus>,
    tokenizer: Arc<Tokenizer>,
    /// Samplers of sources and targets.
    samplers: Option<[SegmentationSampler; 2]>,
    settings: Arc<BatchSettings>,
    reader: BlockReader,
    stop: Stop,
    /// The next window.
    epoch: u64,
    index: u64,
    /// The epoch's blocks in their order.
    blocks: Vec<u32>,
    /// The pairs of a corpus of one window, the same in every epoch.
    only: Option<(Arc<Vec<Arc<Encoded>>>, LeftOut)>,
}

impl Windows {
    pub(super) fn new(
        corpus: Arc<Corpus>,
        tokenizer: Arc<Tokenizer>,
        settings: Arc<BatchSettings>,
        position: Position,
        stop: Stop,
    ) -> Result<Self> {
        let reader = BlockReader::open(&corpus)?;
        let (epoch, index) = (position.epoch, position.window);
        let samplers = settings
            .subword_sampling
            .map(|alpha| SegmentationSampler::of(&tokenizer, alpha))
            .transpose()?;
        let mut windows = Self {
            corpus,
            tokenizer,
            samplers,
            settings,
            reader,
            stop,
            epoch,
            index,
            blocks: Vec::new(),
            only: None,
        };
        windows.order_blocks();
        Ok(windows)
    }

    fn order_blocks(&mut self) {
        // 2^32 blocks are 270 billion lines.
        self.blocks = (0..self.corpus.n_blocks() as u32).collect();
        shuffle(&mut self.blocks, Purpose::Blocks, self.settings.seed, self.epoch, 0);
    }

    /// Reads the next window; `None` if the iterator was stopped.
    fn read(&mut self) -> Result<Option<Window>> {
        let n_windows = self.blocks.len().div_ceil(WINDOW_BLOCKS) as u64;
        // A position past the end, saved for a larger corpus, begins the next epoch.
        if self.index >= n_windows {
            self.epoch += 1;
            self.index = 0;
            self.order_blocks();
        }
        let (epoch, index) = (self.epoch, self.index);
        let (pairs, left_out) = match &self.only {
            Some((pairs, left_out)) => (Arc::clone(pairs), *left_out),
            None => {
                let Some((pairs, left_out)) = self.encode(index as usize * WINDOW_BLOCKS)? else {
                    return Ok(None);
                };
                let pairs = Arc::new(pairs);
                if n_windows == 1 {
                    self.only = Some((Arc::clone(&pairs), left_out));
                }
                (pairs, left_out)
            }
        };
        self.index += 1;
        let pairs = self.samplers.as_ref().map_or(Arc::clone(&pairs), |samplers| {
            Arc::new(self.sampled(&pairs, samplers, (epoch, index)))
        });
        Ok(Some(Window { epoch, index, is_last: index + 1 == n_windows, pairs, left_out }))
    }

    /// The pairs with newly sampled pieces; a pair that would become too long is unchanged.
    fn sampled(
        &self,
        pairs: &[Arc<Encoded>],
        samplers: &[SegmentationSampler; 2],
        (epoch, index): (u64, u64),
    ) -> Vec<Arc<Encoded>> {
        let mut random = random(Purpose::Segmentation, self.settings.seed, epoch, index);
        let mut number = || (random() >> 11) as f64 / (1u64 << 53) as f64;
        let mut sample = |pair: &Arc<Encoded>| {
            let [source, labels] = [(&samplers[0], &pair.source), (&samplers[1], &pair.labels)]
                .map(|(sampler, ids)| sampler.sample(ids, &mut number));
            let fits = source.len() <= self.settings.max_source_tokens
                && labels.len() <= self.settings.max_target_tokens;
            if fits {
                Arc::new(Encoded {
                    place: pair.place,
                    source: source.into(),
                    labels: labels.into(),
                })
            } else {
                Arc::clone(pair)
            }
        };
        pairs.iter().map(&mut sample).collect()
    }

    fn encode(&mut self, first: usize) -> Result<Option<(Vec<Arc<Encoded>>, LeftOut)>> {
        let mut blocks = self.blocks[first..self.blocks.len().min(first + WINDOW_BLOCKS)].to_vec();
        // The shuffled order has selected the blocks. They are read in file order, which is the
        // same in every epoch of a corpus of one window.
        blocks.sort_unstable();
        let (mut pairs, mut left_out) = (Vec::new(), LeftOut::default());
        for block in blocks {
            if self.stop.is_set() {
                return Ok(None);
            }
            for pair in self.reader.read(&self.corpus, block.into())? {
                let encoded =
                    encode(&pair, &self.tokenizer, &self.settings, &self.corpus, &mut left_out)?;
                pairs.extend(encoded.map(Arc::new));
            }
        }
        Ok(Some((pairs, left_out)))
    }
}

impl Iterator for Windows {
    type Item = Result<Window>;

    fn next(&mut self) -> Option<Result<Window>> {
        if self.stop.is_set() {
            return None;
        }
        self.read().transpose()
    }
}
