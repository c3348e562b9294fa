//! The queue step by step: each event of its only worker waits until the test has read it.

use cognate_pipeline::{
    Answer, DecodingOptions, ErrorKind, Languages, Line, LoadOptions, QueueEvent, QueueOptions,
    Receiver, Ticket, TranslationQueue, Translator, TranslatorOptions,
};
use cognate_runtime::Engine;
use cognate_testing::bundled_checkpoint;
use serde_json::{Value, json};
use std::sync::Mutex;
use std::sync::mpsc::{self, sync_channel};
use std::time::Duration;

const DOGS: &str = "Two dogs are playing in the snow.";

struct Stepwise {
    /// Dropped before the queue, which waits for its worker.
    events: mpsc::Receiver<QueueEvent>,
    queue: TranslationQueue,
    translator: Translator,
}

impl Stepwise {
    /// A queue for sentences with these options.
    fn new(options: &Value, held: usize) -> Self {
        let load = LoadOptions {
            engine: Engine::Tract,
            workers: Some(std::num::NonZeroUsize::MIN),
            ..LoadOptions::default()
        };
        let translator = Translator::open_with(
            bundled_checkpoint(),
            &TranslatorOptions { load, ..TranslatorOptions::default() },
        );
        let decoding = DecodingOptions::from_json(options.as_object().unwrap()).unwrap();
        let translator = translator.unwrap().with(&Languages::default(), &decoding).unwrap();
        let (sender, events) = sync_channel(0);
        let sender = Mutex::new(sender);
        // The test may have ended.
        let observer = Box::new(move |event| {
            let _ = sender.lock().unwrap().send(event);
        });
        let options = QueueOptions { waiting: 100, held, observer };
        Self { queue: TranslationQueue::new(&translator, options).unwrap(), translator, events }
    }

    fn submit(&self, texts: &[&str], streams: bool, receive: Receiver) -> Ticket {
        let lines: Vec<_> =
            texts.iter().map(|text| Line { text: (*text).into(), prefix: None }).collect();
        self.queue.submit(&self.translator, &lines, streams, receive).unwrap()
    }

    fn next(&self) -> QueueEvent {
        self.events.recv_timeout(Duration::from_secs(600)).unwrap()
    }

    /// The number of sentences in the next step. None is translated before it.
    fn step(&self) -> usize {
        loop {
            match self.next() {
                QueueEvent::Advanced { sentences } => return sentences,
                QueueEvent::Finished { .. } => panic!("a sentence was translated"),
                _ => {}
            }
        }
    }

    /// Whether the batch changes to this number within a step, which can have begun.
    fn becomes(&self, sentences: usize) -> bool {
        self.step() == sentences || self.step() == sentences
    }
}

fn ignored() -> Receiver {
    Box::new(|_, _| {})
}

/// Ways of decoding for at least 40 steps.
fn ways() -> [Value; 3] {
    let least = json!({ "min_new_tokens": 40, "max_new_tokens": 50 });
    [json!({}), json!({ "beams": 3 }), json!({ "sample": true, "n_best": 2 })].map(|mut way| {
        way.as_object_mut().unwrap().extend(least.as_object().unwrap().clone());
        way
    })
}

#[test]
fn callers_who_leave_take_their_sentences_along_within_a_step() {
    for way in ways() {
        for streams in [false, way.get("beams").is_none() && way.get("sample").is_none()] {
            let stepwise = Stepwise::new(&way, usize::MAX);
            // While this one runs, the others wait, and begin together.
            let first = stepwise.submit(&[DOGS], streams, ignored());
            assert_eq!(stepwise.step(), 1, "{way}");
            let leaves = stepwise.submit(&[DOGS, "A man."], streams, ignored());
            let (sender, answers) = mpsc::channel();
            let answer = Mutex::new(sender);
            let _stays = stepwise.submit(
                &["A woman."],
                streams,
                Box::new(move |place, answered| {
                    drop(answer.lock().unwrap().send((place, answered)))
                }),
            );
            drop(first);
            assert!(stepwise.becomes(3), "{way}");
            drop(leaves);
            assert!(stepwise.becomes(1), "{way}");
            for _ in 0..30 {
                assert_eq!(stepwise.step(), 1, "{way}");
            }
            while !matches!(stepwise.next(), QueueEvent::Finished { .. }) {}
            let answers: Vec<_> = std::iter::from_fn(|| answers.recv().ok()).take(1).collect();
            assert!(
                answers.iter().all(|(place, answer)| *place == 0 && answer.is_ok()),
                "{way}: {answers:?}"
            );
            assert!(stepwise.events.recv_timeout(Duration::from_millis(50)).is_err(), "{way}");
        }
    }
}

/// 10 sentences of at most 12 tokens that may grow by 8: 200 tokens for each hypothesis.
#[test]
fn batches_are_bounded_by_what_they_may_grow_to() {
    let texts = [DOGS; 10];
    for (options, held, expected) in [
        (json!({}), 1000, 10),
        (json!({}), 60, 3),
        (json!({ "beams": 3 }), 60, 1),
        (json!({ "sample": true, "n_best": 2 }), 80, 2),
        (json!({}), 1, 1),
    ] {
        let mut options = options;
        options["max_new_tokens"] = json!(8);
        let stepwise = Stepwise::new(&options, held);
        let _ticket = stepwise.submit(&texts, false, ignored());
        let mut most = 0;
        let mut n_finished = 0;
        while n_finished < texts.len() {
            match stepwise.next() {
                QueueEvent::Advanced { sentences } => most = most.max(sentences),
                QueueEvent::Finished { .. } => n_finished += 1,
                _ => {}
            }
        }
        assert_eq!(most, expected, "{options} {held}");
    }
}

#[test]
fn sentences_that_are_too_long_are_refused() {
    let stepwise = Stepwise::new(&json!({}), usize::MAX);
    let lines = [DOGS.to_owned(), "dog ".repeat(2000)].map(|text| Line { text, prefix: None });
    let error = stepwise
        .queue
        .submit(&stepwise.translator, &lines, false, ignored())
        .err()
        .map(|error| (error.kind(), error.to_string()));
    let (kind, message) = error.unwrap();
    assert_eq!(kind, ErrorKind::TooLong);
    assert!(message.starts_with("sentence 2: has 2001 tokens; expected at most "), "{message}");
    assert_eq!(stepwise.queue.n_waiting(), 0);
    let _ticket = stepwise.submit(
        &[DOGS],
        false,
        Box::new(|_, answer| assert!(matches!(answer, Ok(Answer::Translation(_))))),
    );
    while !matches!(stepwise.next(), QueueEvent::Finished { .. }) {}
}
