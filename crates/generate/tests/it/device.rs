//! Caches in the memory of a device: they stay there, and decoding is as on the host.

use crate::golden::{reference, settings, sources};
use cognate_generate::{Decoder, SentenceBatch, Settings, SharedCacheDecoder, Sources, decode};
use cognate_model::{Attentions, Layout, Model};
use cognate_runtime::{
    EngineTensor, Options, Reference, Result, Runtime, Session, Source, Value, Values,
};
use cognate_testing::{Golden, golden};
use ndarray::{ArrayD, Axis, IxDyn};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::sync::Arc;

/// A tensor that cannot be copied to the host.
#[derive(Clone, Debug)]
struct Distant(ArrayD<f32>);

impl EngineTensor for Distant {
    fn shape(&self) -> &[usize] {
        self.0.shape()
    }

    fn to_host(&self) -> Result<Value> {
        panic!("{:?} leaves the device", self.0.shape());
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn distant(array: ArrayD<f32>) -> Value {
    Value::Engine(Arc::new(Distant(array)))
}

fn array(value: &Value) -> Option<&ArrayD<f32>> {
    match value {
        Value::Engine(held) => held.as_any().downcast_ref().map(|Distant(array)| array),
        _ => None,
    }
}

/// What happened to caches.
#[derive(Default)]
struct Counts {
    selected: Cell<usize>,
    widened: Cell<usize>,
    /// The rows that were written together.
    written: RefCell<BTreeSet<[usize; 2]>>,
    /// The largest number of sentences that had left and were still computed.
    stayed: Cell<usize>,
    /// The numbers of sentences, and widths of sources, of all steps.
    shapes: RefCell<BTreeSet<[usize; 2]>>,
}

/// A decoder whose caches are distant.
struct OnDevice {
    inner: Box<dyn Session>,
    counts: Rc<Counts>,
}

impl Session for OnDevice {
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    fn inputs(&self) -> &[String] {
        self.inner.inputs()
    }

    fn outputs(&self) -> &[String] {
        self.inner.outputs()
    }

    fn has_own_memory(&self) -> bool {
        true
    }

    fn reserve(&self, _: &str, shape: &[usize]) -> Result<Option<Value>> {
        Ok(Some(distant(ArrayD::from_elem(IxDyn(shape), f32::NAN))))
    }

    fn with_rows(&self, whole: Value, first: usize, rows: &Value) -> Result<Value> {
        let mut whole = array(&whole).expect("of `reserve`").clone();
        let rows = rows.to_f32()?;
        let end = first + rows.len_of(Axis(0));
        whole.slice_axis_mut(Axis(0), (first..end).into()).assign(&rows);
        self.counts.written.borrow_mut().insert([first, end]);
        Ok(distant(whole))
    }

    fn select(&self, value: &Value, leading: &[usize], rows: &[usize]) -> Result<Option<Value>> {
        let Some(all) = array(value) else { return Ok(None) };
        assert_eq!(leading, [rows.len()]);
        self.counts.selected.set(self.counts.selected.get() + 1);
        Ok(Some(distant(all.select(Axis(0), rows))))
    }

    fn widened(&self, cache: &Value, places: usize) -> Result<Option<Value>> {
        let Some(old) = array(cache) else { return Ok(None) };
        self.counts.widened.set(self.counts.widened.get() + 1);
        let mut shape = old.shape().to_vec();
        shape[2] = places;
        let mut wide = ArrayD::from_elem(shape, f32::NAN);
        wide.slice_axis_mut(Axis(2), (..old.shape()[2]).into()).assign(old);
        Ok(Some(distant(wide)))
    }

    fn run(&mut self, inputs: &Values) -> Result<Values> {
        if let (Some(Value::I64(tokens)), Some(mask)) =
            (inputs.get("input_ids"), inputs.get("attention_mask"))
        {
            let n_padding =
                tokens.outer_iter().filter(|row| row.iter().all(|&token| token == PAD)).count();
            self.counts.stayed.set(self.counts.stayed.get().max(n_padding));
            self.counts.shapes.borrow_mut().insert([mask.shape()[0], mask.shape()[1]]);
        }
        let given = inputs.iter().map(|(name, value)| {
            let value = array(value).map_or_else(|| value.clone(), |array| array.clone().into());
            (name, value)
        });
        let outputs = self.inner.run(&given.collect())?;
        let held = |(name, value): (String, Value)| match value {
            Value::F32(array) if name.starts_with("present.") => (name, distant(array)),
            value => (name, value),
        };
        Ok(outputs.into_iter().map(held).collect())
    }
}

/// A token that no hypothesis contains.
const PAD: i64 = 3;

/// The tokens of the best hypothesis of each source.
fn decoded(decoder: &mut dyn Decoder, settings: &Settings, sources: Sources<'_>) -> Vec<Vec<i64>> {
    let batch = SentenceBatch::new(sources);
    let found = decode(decoder, &batch, settings, &mut |_| ControlFlow::Continue(()));
    found.unwrap().into_iter().map(|mut found| found.remove(0).tokens).collect()
}

/// The model's decoder on the device, and what happens there.
fn on_device(model: &Model, settings: &Settings) -> (SharedCacheDecoder, Rc<Counts>) {
    let load = |program: &cognate_graph::Program| {
        Reference::F32.load(&Source::Graph(program.clone()), &Options::default()).unwrap()
    };
    let programs = model.programs(Layout::SharedCache, Attentions::Omit).unwrap();
    let counts = Rc::new(Counts::default());
    let decoder = OnDevice { inner: load(&programs[1]), counts: counts.clone() };
    let decoder =
        SharedCacheDecoder::new(load(&programs[0]), Box::new(decoder), settings.pad_token).unwrap();
    (decoder, counts)
}

#[test]
fn windows_are_encoded_in_parts() {
    let name = "speech/whisper";
    let model = Model::open(&golden(name)).unwrap();
    let frames = ArrayD::from_shape_fn(IxDyn(&[19, 80, 100]), |at| {
        ((at[0] * 31 + at[1] * 7 + at[2]) as f32).sin()
    });
    for num_beams in [1, 4] {
        let settings = Settings { num_beams, max_new_tokens: 12, ..settings(name) };
        let (mut decoder, counts) = on_device(&model, &settings);
        let found = decoded(&mut decoder, &settings, (&frames).into());
        let expected = decoded(&mut reference(name).0, &settings, (&frames).into());
        assert_eq!(found, expected, "{num_beams} beams");
        let different: BTreeSet<_> = found.into_iter().collect();
        assert!(different.len() > 4, "{different:?}");
        let written = counts.written.take().into_iter().collect::<Vec<_>>();
        assert_eq!(written, [[0, 8], [8, 16], [16, 19]], "{num_beams} beams");
    }
}

#[test]
fn caches_stay_on_the_device() {
    // Its sentences become 40, 11 and 26 tokens, so that 3 of 8 stay, and later 2.
    let name = "strange/m2m100-asymmetric";
    let model = Model::open(&golden(name)).unwrap();
    let sources = sources(&Golden::open(name));
    let sources = [1, 0, 1, 2, 1, 0, 1, 1].map(|index| sources[index].clone()).to_vec();
    for num_beams in [1, 4] {
        let settings = Settings { num_beams, max_new_tokens: 40, ..settings(name) };
        assert_eq!(settings.pad_token, PAD);
        let (mut decoder, counts) = on_device(&model, &settings);
        let found = decoded(&mut decoder, &settings, (&sources).into());
        let expected = decoded(&mut reference(name).0, &settings, (&sources).into());
        assert_eq!(found, expected, "{num_beams} beams");
        // Sentences are halved, and sources have a multiple of 8 tokens.
        let shapes = counts.shapes.take().into_iter().collect::<Vec<_>>();
        assert_eq!(shapes, [[2, 16], [4, 16], [8, 16]], "{num_beams} beams");
        let counts = [&counts.selected, &counts.widened, &counts.stayed].map(Cell::get);
        assert!(counts.iter().all(|&count| count > 0), "{num_beams} beams: {counts:?}");
    }
}
