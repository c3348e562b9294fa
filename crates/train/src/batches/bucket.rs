//! Batches of sentences of similar length.

use std::sync::Arc;

use super::BatchSettings;
use super::encode::Encoded;
use super::order::{Purpose, shuffle};
use super::windows::Window;

/// The window's batches in the order of their use.
pub(super) fn batches(window: &Window, settings: &BatchSettings) -> Vec<Vec<Arc<Encoded>>> {
    let mut pairs: Vec<Arc<Encoded>> = window.pairs.to_vec();
    let random = |purpose| (purpose, settings.seed, window.epoch, window.index);
    let (purpose, seed, epoch, index) = random(Purpose::Pairs);
    // Sorting is stable: pairs of equal lengths get other neighbours in every epoch.
    shuffle(&mut pairs, purpose, seed, epoch, index);
    pairs.sort_by_key(|pair| {
        let (source, target) = (pair.source.len(), pair.labels.len());
        // Source lengths rise and fall alternately, so that they are similar where the target
        // length changes.
        (target, if target % 2 == 0 { source } else { usize::MAX - source })
    });
    let mut batches: Vec<Vec<Arc<Encoded>>> = Vec::new();
    let (mut source, mut target) = (0, 0);
    for pair in pairs {
        let (longest_source, longest_target) =
            (pair.source.len().max(source), pair.labels.len().max(target));
        let n = batches.last().map_or(0, Vec::len) + 1;
        let fits = n * longest_source.max(longest_target) <= settings.max_tokens
            && settings.max_sentences.is_none_or(|most| n <= most);
        match batches.last_mut() {
            Some(batch) if fits => {
                (source, target) = (longest_source, longest_target);
                batch.push(pair);
            }
            _ => {
                (source, target) = (pair.source.len(), pair.labels.len());
                batches.push(vec![pair]);
            }
        }
    }
    let (purpose, seed, epoch, index) = random(Purpose::Batches);
    shuffle(&mut batches, purpose, seed, epoch, index);
    batches
}
