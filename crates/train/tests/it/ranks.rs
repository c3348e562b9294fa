//! Runs shared by several ranks: here threads, which are to come to what one process comes to.

use crate::Folder;
use crate::trainer::{config, log, ort};
use cognate_runtime::Device;
use cognate_train::config::TrainingConfig;
use cognate_train::{Beginning, Event, Machine, Outcome, Ranks, Result, Trainer};
use safetensors::SafeTensors;
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::Duration;

/// Where threads exchange what they have.
#[derive(Default)]
struct Meeting {
    /// What was brought to each round, by rank.
    rounds: Mutex<Vec<Vec<Option<Vec<u8>>>>>,
    brought: Condvar,
}

/// One of the threads.
struct Thread<'m> {
    rank: usize,
    size: usize,
    round: std::cell::Cell<usize>,
    meeting: &'m Meeting,
}

impl Thread<'_> {
    fn exchange(&self, mine: Vec<u8>) -> Vec<Vec<u8>> {
        let round = self.round.replace(self.round.get() + 1);
        let mut rounds = self.meeting.rounds.lock().unwrap();
        while rounds.len() <= round {
            rounds.push(vec![None; self.size]);
        }
        rounds[round][self.rank] = Some(mine);
        self.meeting.brought.notify_all();
        let is_missing =
            |rounds: &mut Vec<Vec<Option<Vec<u8>>>>| rounds[round].iter().any(Option::is_none);
        let (rounds, waited) = self
            .meeting
            .brought
            .wait_timeout_while(rounds, Duration::from_secs(120), is_missing)
            .unwrap();
        assert!(!waited.timed_out(), "a rank is lost");
        rounds[round].iter().cloned().map(Option::unwrap).collect()
    }
}

impl Ranks for Thread<'_> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn sum(&self, values: &mut [f32]) {
        let mut wide: Vec<f64> = values.iter().copied().map(f64::from).collect();
        self.sum_f64(&mut wide);
        values.iter_mut().zip(wide).for_each(|(value, sum)| *value = sum as f32);
    }

    fn sum_f64(&self, values: &mut [f64]) {
        let all = self.exchange(values.iter().flat_map(|value| value.to_le_bytes()).collect());
        for (index, value) in values.iter_mut().enumerate() {
            *value = all
                .iter()
                .map(|bytes| f64::from_le_bytes(bytes[8 * index..][..8].try_into().unwrap()))
                .sum();
        }
    }

    fn broadcast(&self, root: usize, bytes: &mut Vec<u8>) {
        *bytes = self.exchange(std::mem::take(bytes)).swap_remove(root);
    }
}

/// What each of the ranks, of which each has its own settings, says: losses of updates, and how it
/// ended.
fn run(
    configs: &[TrainingConfig],
    out: &Path,
    beginning: Beginning,
) -> Vec<(Vec<f64>, Result<Outcome>)> {
    let (meeting, size) = (Meeting::default(), configs.len());
    let one = |(rank, config): (usize, &TrainingConfig)| {
        let (runtime, mut losses) = (ort().unwrap(), Vec::new());
        let ranks = Thread { rank, size, round: 0.into(), meeting: &meeting };
        let machine = Machine { runtime: &*runtime, device: Device::Cpu, ranks: &ranks };
        let outcome =
            Trainer::new(config.clone(), out, beginning, machine).and_then(|mut trainer| {
                trainer.run(&mut |event| {
                    if let Event::Update(progress) = event {
                        losses.push(progress.loss);
                    }
                    ControlFlow::Continue(())
                })
            });
        (losses, outcome)
    };
    thread::scope(|scope| {
        let threads: Vec<_> =
            configs.iter().enumerate().map(|each| scope.spawn(move || one(each))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The weights in a folder, one after the other.
fn weights(folder: &Path) -> Vec<f32> {
    let bytes = fs::read(folder.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let mut names = tensors.names();
    names.sort();
    let numbers = |name| {
        tensors
            .tensor(name)
            .unwrap()
            .data()
            .chunks(4)
            .map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap()))
            .collect()
    };
    names.into_iter().flat_map(|name: &str| -> Vec<f32> { numbers(name) }).collect()
}

/// Settings with more lines; batches of 24 tokens, of which some have fewer sentences than there
/// are ranks.
fn settings(folder: &Folder, more: &str) -> TrainingConfig {
    let mut settings = config(folder, &format!("{SETTINGS}\n{more}"));
    settings.data.max_tokens = 24;
    settings
}

const SETTINGS: &str = "dropout.embeddings = 0.0\ndropout.sublayers = 0.0\n\
                        schedule.validate_every = 6\nschedule.log_every = 3\nschedule.metric = \"bleu\"\noptimiser.accumulation = 2";

#[test]
fn several_ranks_come_to_what_one_does() {
    let Some(_) = ort() else { return };
    let folder = Folder::new();
    let settings = settings(&folder, "schedule.max_updates = 12");
    let path = |name: &str| folder.path().join(name);
    let alone = run(std::slice::from_ref(&settings), &path("1"), Beginning::Fresh).remove(0);
    assert_eq!((alone.0.len(), alone.1.unwrap().updates), (12, 12));
    for size in [2, 3] {
        let out = path(&size.to_string());
        let ranks = run(&vec![settings.clone(); size], &out, Beginning::Fresh);
        for (rank, (losses, outcome)) in ranks.iter().enumerate() {
            assert_eq!(
                (losses, outcome),
                (&ranks[0].0, &ranks[0].1),
                "rank {rank} of {size} was told another story"
            );
            for (update, (loss, expected)) in losses.iter().zip(&alone.0).enumerate() {
                assert!(
                    (loss - expected).abs() < 1e-5 * expected,
                    "{size} ranks, update {update}: {loss} and {expected}"
                );
            }
        }
        let differences = weights(&out)
            .into_iter()
            .zip(weights(&path("1")))
            .map(|(one, other)| (one - other).abs());
        let most = differences.fold(0.0, f32::max);
        assert!(most < 1e-4, "{size} ranks: weights differ by {most}");
        for (line, expected) in log(&out).iter().zip(log(&path("1"))) {
            assert_eq!(line["update"], expected["update"]);
            let near = |field: &str| {
                (line[field].as_f64().unwrap_or(0.0) - expected[field].as_f64().unwrap_or(0.0))
                    .abs()
                    < 1e-3
            };
            assert!(
                ["loss", "nll", "valid_loss", "gradient_norm", "bleu"].into_iter().all(near),
                "{line} and {expected}"
            );
        }
    }
}

#[test]
fn several_ranks_go_on_to_the_same_losses() {
    let Some(_) = ort() else { return };
    let folder = Folder::new();
    let (whole, first) = (
        settings(&folder, "schedule.max_updates = 12"),
        settings(&folder, "schedule.max_updates = 7"),
    );
    let (unbroken, broken) = (folder.path().join("unbroken"), folder.path().join("broken"));
    let expected = run(&[whole.clone(), whole.clone()], &unbroken, Beginning::Fresh).remove(0).0;
    let mut losses = run(&[first.clone(), first], &broken, Beginning::Fresh).remove(0).0;
    losses.extend(run(&[whole.clone(), whole], &broken, Beginning::Resume).remove(0).0);
    assert_eq!(losses, expected);
    assert_eq!(weights(&broken), weights(&unbroken));
}

#[test]
fn ranks_with_other_settings_are_refused_by_all() {
    let Some(_) = ort() else { return };
    let folder = Folder::new();
    let settings = [0.1, 0.2].map(|smoothing| {
        settings(
            &folder,
            &format!("schedule.max_updates = 2\noptimiser.label_smoothing = {smoothing}"),
        )
    });
    for (losses, outcome) in run(&settings, &folder.path().join("out"), Beginning::Fresh) {
        assert_eq!(
            (losses.len(), outcome.unwrap_err().to_string().as_str()),
            (0, "rank 1 has other settings than rank 0; all need the same")
        );
    }
}
