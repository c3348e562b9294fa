//! Batches of sentences of similar length.

use crate::error::{Error, Result};
use crate::loaded::LoadedModel;
use cognate_generate::Decoder;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

/// The maximum size of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchLimit {
    /// Number of tokens, padding included.
    pub tokens: usize,
    /// Number of sentences.
    pub sentences: usize,
}

impl BatchLimit {
    /// A limit on tokens only.
    pub fn tokens(tokens: usize) -> Self {
        Self { tokens, sentences: usize::MAX }
    }
}

/// Divides sentences into batches within a limit; a longer sentence is one batch. Returns indices
/// into `lengths`, the longest sentences first.
pub fn batches(lengths: &[usize], limit: BatchLimit) -> Vec<Vec<usize>> {
    let mut order: Vec<_> = (0..lengths.len()).collect();
    // Stable, so that batches depend only on the text.
    order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match batches.last_mut() {
            // The others are padded to the length of the first sentence.
            Some(batch)
                if batch.len() < limit.sentences
                    && (batch.len() + 1) * lengths[batch[0]] <= limit.tokens =>
            {
                batch.push(index)
            }
            _ => batches.push(vec![index]),
        }
    }
    batches
}

/// Runs `work` on each batch, with one decoder for each of the model's workers, and returns the
/// results in the order of the sentences. `done` is called after each batch with its indices and
/// results.
///
/// Batches, and so results, depend only on the lengths, not on the number of workers.
///
/// # Errors
/// The first error of `work`; no more batches are started then.
pub fn in_batches<T: Send>(
    model: &LoadedModel,
    lengths: &[usize],
    limit: BatchLimit,
    work: impl Fn(&mut dyn Decoder, &[usize]) -> Result<Vec<T>> + Sync,
    done: impl FnMut(&[usize], &[T]),
) -> Result<Vec<T>> {
    let workers = (model.workers(), || model.decoder());
    let padded = |length: &usize| length.next_multiple_of(model.source_multiple());
    let lengths: Vec<_> = lengths.iter().map(padded).collect();
    on_workers(
        workers,
        batches(&lengths, limit),
        |decoder, batch| work(decoder.as_mut(), batch),
        done,
    )
}

/// [`in_batches`] for as many workers, each with what the function makes; every index is in one of
/// the batches.
pub(crate) fn on_workers<W, T: Send>(
    (n_workers, make): (NonZeroUsize, impl Fn() -> Result<W> + Sync),
    batches: Vec<Vec<usize>>,
    work: impl Fn(&mut W, &[usize]) -> Result<Vec<T>> + Sync,
    mut done: impl FnMut(&[usize], &[T]),
) -> Result<Vec<T>> {
    let mut all: Vec<Option<T>> = batches.iter().flatten().map(|_| None).collect();
    let mut put = |number: usize, found: Vec<T>| {
        let batch: &Vec<usize> = &batches[number];
        done(batch, &found);
        batch.iter().zip(found).for_each(|(&index, found)| all[index] = Some(found));
    };
    let n_workers = n_workers.get().min(batches.len());
    if n_workers == 1 {
        // Starting a thread takes a twentieth of the time of a short sentence.
        let mut worker = make()?;
        for (number, batch) in batches.iter().enumerate() {
            put(number, work(&mut worker, batch)?);
        }
    } else {
        let next = AtomicUsize::new(0);
        let (sender, results) = mpsc::channel();
        let worker = |sender: mpsc::Sender<Result<(usize, Vec<T>)>>| {
            let run = || -> Result<()> {
                let mut worker = make()?;
                while let number = next.fetch_add(1, Ordering::Relaxed)
                    && let Some(batch) = batches.get(number)
                {
                    // The receiver is gone after an error of another worker.
                    if sender.send(Ok((number, work(&mut worker, batch)?))).is_err() {
                        break;
                    }
                }
                Ok(())
            };
            if let Err(error) = run() {
                let _ = sender.send(Err(error));
            }
        };
        thread::scope(|scope| {
            for _ in 0..n_workers {
                let (sender, worker) = (sender.clone(), &worker);
                scope.spawn(move || worker(sender));
            }
            drop(sender);
            // Dropped at the first error, so that the workers end.
            for result in results {
                let (number, found) = result?;
                put(number, found);
            }
            Ok::<_, Error>(())
        })?;
    }
    Ok(all.into_iter().map(|found| found.expect("every sentence is in a batch")).collect())
}
