//! Translations of one text by two programs: the same, where the reference in f64 prefers no score
//! by a distance that f32 rounds away.

use crate::SENTENCES;
use cognate_generate::{SentenceBatch, SessionDecoder, Settings, decode};
use cognate_model::{Attentions, Model};
use cognate_runtime::{Options, Reference, Runtime, Source};
use cognate_testing::bundled_checkpoint;
use cognate_text::Tokenizer;
use std::ops::ControlFlow;

/// Where two scores of which one was preferred are nearer than this, either is right.
pub(crate) const TIE: f32 = 1e-5;

/// How sentences were translated by the bundled checkpoint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) beams: usize,
    /// Lines for each sentence.
    pub(crate) n_best: usize,
}

impl Way {
    pub(crate) const GREEDY: Self = Self { beams: 1, n_best: 1 };

    /// What is another translation and no tie, a line each; `sentences[i]` has the lines from
    /// `i · n_best` on. Tells of ties.
    pub(crate) fn wrong(
        self,
        sentences: &[String],
        expected: &[String],
        found: &[String],
    ) -> Vec<String> {
        assert_eq!(
            (expected.len(), found.len()),
            (sentences.len() * self.n_best, sentences.len() * self.n_best)
        );
        let pairs = expected.chunks(self.n_best).zip(found.chunks(self.n_best));
        let differing: Vec<_> = sentences
            .iter()
            .zip(pairs)
            .enumerate()
            .filter(|(_, (_, (expected, found)))| expected != found)
            .collect();
        let margins = self.margins(differing.iter().map(|(_, (sentence, _))| sentence.as_str()));
        let mut wrong = Vec::new();
        for ((index, (_, (expected, found))), margin) in differing.into_iter().zip(margins) {
            let number = index + 1;
            let line = format!(
                "sentence {number}, margin {margin:e}\n  expected {expected:?}\n  found    {found:?}"
            );
            if margin < TIE { eprintln!("a tie: {line}") } else { wrong.push(line) }
        }
        wrong
    }

    /// The smallest distance between two scores of which the reference in f64 prefers one, of each
    /// sentence.
    pub(crate) fn margins<'t>(self, sentences: impl Iterator<Item = &'t str>) -> Vec<f32> {
        let folder = bundled_checkpoint();
        let (model, tokenizer) =
            (Model::open(&folder).unwrap(), Tokenizer::from_folder(&folder).unwrap());
        let generation = std::fs::read_to_string(folder.join("generation_config.json")).unwrap();
        let defaults =
            Settings::from_json(model.config_json(), Some(&generation), model.config()).unwrap();
        let settings =
            Settings { num_beams: self.beams, num_return_sequences: self.n_best, ..defaults };
        let load =
            |program| Reference::F64.load(&Source::Graph(program), &Options::default()).unwrap();
        let (encoder, step) =
            (load(model.encode().unwrap()), load(model.step(Attentions::Omit).unwrap()));
        let mut decoder = SessionDecoder::new(encoder, step, settings.pad_token).unwrap();
        let sources: Vec<_> = sentences.map(|text| tokenizer.encode(text).unwrap()).collect();
        let decoded = decode(&mut decoder, &SentenceBatch::new(&sources), &settings, &mut |_| {
            ControlFlow::Continue(())
        })
        .unwrap();
        decoded.into_iter().map(|found| found[0].margin()).collect()
    }
}

#[test]
fn the_reference_decodes_with_margins() {
    for way in [Way::GREEDY, Way { beams: 5, n_best: 3 }] {
        let margins = way.margins(SENTENCES.into_iter());
        assert!(
            margins.iter().all(|margin| *margin > TIE && margin.is_finite()),
            "{way:?}: {margins:?}"
        );
    }
}

#[test]
fn another_text_is_wrong_unless_it_is_a_tie() {
    let sentences = SENTENCES.map(str::to_owned);
    for way in [Way::GREEDY, Way { beams: 5, n_best: 1 }, Way { beams: 5, n_best: 3 }] {
        let expected: Vec<_> = (0..2 * way.n_best).map(|line| format!("Zeile {line}.")).collect();
        assert_eq!(way.wrong(&sentences, &expected, &expected), Vec::<String>::new());
        // Of the second sentence the last line.
        let mut found = expected.clone();
        found[2 * way.n_best - 1] = "Zwei Katzen spielen im Schnee.".into();
        let wrong = way.wrong(&sentences, &expected, &found);
        assert!(
            matches!(&wrong[..], [line] if line.starts_with("sentence 2, margin ")),
            "{way:?}: {wrong:?}"
        );
    }
}
