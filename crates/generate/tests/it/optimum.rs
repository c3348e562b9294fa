//! Decoders as Optimum divides them, made of Cognate's own graph of the Hugging Face layout: what
//! is seen of them from outside is Optimum's, and what a subgraph does not read is not given to it.

use crate::golden::{reference, settings, sources};
use cognate_generate::{Decoder, Hypothesis, SentenceBatch, decode, decoder};
use cognate_model::{Attentions, HuggingFaceNames, Layout, Model};
use cognate_runtime::{Options, Reference, Result, Runtime, Session, Source, Value, Values};
use cognate_testing::{Golden, golden};
use ndarray::{ArrayD, Ix1};
use std::ops::ControlFlow;

const BRANCH: &str = "use_cache_branch";

/// Which of Optimum's decoders.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    /// `decoder_model_merged.onnx`
    Merged,
    /// `decoder_model.onnx`
    First,
    /// `decoder_with_past_model.onnx`
    Later,
}

/// The graph, in the disguise of a part.
struct Disguised {
    graph: Box<dyn Session>,
    part: Part,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// `[heads, d_k, d_model]`
    sizes: [usize; 3],
}

impl Disguised {
    fn new(model: &Model, part: Part) -> Self {
        let [_, step] = model.graphs(Layout::HuggingFace, Attentions::Omit).unwrap();
        let graph = Reference::F64.load(&Source::Graph(step), &Options::default()).unwrap();
        let mut inputs = graph.inputs().to_vec();
        let mut outputs = graph.outputs().to_vec();
        match part {
            Part::Merged => inputs.push(BRANCH.into()),
            Part::First => inputs.retain(|name| !name.starts_with("past_key_values.")),
            Part::Later => {
                inputs.retain(|name| name != "encoder_hidden_states");
                outputs.retain(|name| !name.contains(".encoder."));
            }
        }
        let config = model.config();
        Self {
            graph,
            part,
            inputs,
            outputs,
            sizes: [config.decoder.heads, config.decoder.d_k, config.d_model],
        }
    }
}

impl Session for Disguised {
    fn engine(&self) -> &str {
        "disguised"
    }

    fn inputs(&self) -> &[String] {
        &self.inputs
    }

    fn outputs(&self) -> &[String] {
        &self.outputs
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        let mut names: Vec<_> = inputs.iter().map(|(name, _)| name.to_owned()).collect();
        let mut expected = self.inputs.clone();
        names.sort();
        expected.sort();
        assert_eq!(names, expected, "{:?}", self.part);
        let rows = inputs.get("input_ids").unwrap().shape()[0];
        let src = inputs.get("encoder_attention_mask").unwrap().shape()[1];
        let mut given = inputs.clone();
        let goes_on = match given.remove(BRANCH) {
            None => self.part == Part::Later,
            Some(Value::I64(branch)) => branch.into_dimensionality::<Ix1>().unwrap()[0] == 1,
            Some(other) => panic!("{other:?}"),
        };
        let [heads, d_k, d_model] = self.sizes;
        for name in self.graph.inputs() {
            let length = if name.contains(".encoder.") { src } else { 0 };
            if name.starts_with("past_key_values.") {
                if goes_on {
                    assert!(
                        name.contains(".decoder.") || inputs.get(name).unwrap().shape()[2] == src,
                        "{name}"
                    );
                    continue;
                }
                // Names of axes are the same for keys of the source and its states.
                assert!(
                    self.part != Part::Merged
                        || inputs.get(name).unwrap().shape() == [rows, heads, length, d_k],
                    "{name}"
                );
                given.insert(name, ArrayD::<f64>::zeros(vec![rows, heads, 0, d_k]));
            } else if name == "encoder_hidden_states" && goes_on {
                given.insert(name, ArrayD::<f64>::from_elem(vec![rows, src, d_model], f64::NAN));
            }
        }
        let mut outputs = self.graph.run(&given)?;
        for name in (0..)
            .map(HuggingFaceNames::present)
            .take_while(|names| outputs.get(&names[0]).is_some())
            .flatten()
            .collect::<Vec<_>>()
        {
            if goes_on && name.contains(".encoder.") {
                let kept = outputs.remove(&name);
                if self.part == Part::Merged {
                    assert!(kept.is_some());
                    outputs.insert(name, ArrayD::<f64>::zeros(vec![0, heads, 1, d_k]));
                }
            }
        }
        Ok(outputs)
    }
}

#[test]
fn both_forms_of_optimums_decoder_give_the_same_tokens() {
    for name in ["marian", "mt5", "m2m100"] {
        let model = Model::open(&golden(name)).unwrap();
        let sources = sources(&Golden::open(name));
        let (mut own, _) = reference(name);
        for num_beams in [1, 3] {
            let mut settings = settings(name);
            (settings.num_beams, settings.num_return_sequences, settings.max_new_tokens) =
                (num_beams, num_beams, 12);
            let decode = |decoder: &mut dyn Decoder| -> Vec<Vec<Hypothesis>> {
                decode(decoder, &SentenceBatch::new(&sources), &settings, &mut |_| {
                    ControlFlow::Continue(())
                })
                .unwrap()
            };
            let tokens = |found: Vec<Vec<Hypothesis>>| {
                found.into_iter().flatten().map(|found| found.tokens).collect::<Vec<_>>()
            };
            let expected = tokens(decode(&mut own));
            for parts in [&[Part::Merged][..], &[Part::First, Part::Later]] {
                let [encoder, _] = model.graphs(Layout::HuggingFace, Attentions::Omit).unwrap();
                let mut sessions = vec![
                    Reference::F64.load(&Source::Graph(encoder), &Options::default()).unwrap(),
                ];
                sessions.extend(
                    parts
                        .iter()
                        .map(|&part| Box::new(Disguised::new(&model, part)) as Box<dyn Session>),
                );
                let mut optimum =
                    decoder(Layout::HuggingFace, sessions, model.config(), settings.pad_token)
                        .unwrap();
                // Twice: a batch begins anew.
                for _ in 0..2 {
                    assert_eq!(
                        tokens(decode(optimum.as_mut())),
                        expected,
                        "{name} {parts:?} {num_beams} beams"
                    );
                }
            }
        }
    }
}
