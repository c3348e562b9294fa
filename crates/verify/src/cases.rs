//! The batches of a verification: several sizes and lengths, padding, and pasts of 0, 1 and many.

use cognate_audio::{AudioReader, FeatureExtractor, SAMPLE_RATE};
use cognate_generate::Sources;
use cognate_model::interface::{
    ATTENTION_MASK, CACHE_BEAMS, ENCODER_ATTENTION_MASK, ENCODER_HIDDEN_STATES, INPUT_IDS,
    LAST_HIDDEN_STATE, POSITION_IDS, TOKEN_TYPE_IDS, is_cross, past_of,
};
use cognate_model::{Config, Front, HuggingFaceNames, Layout, Names, Parts, TokenTypes};
use cognate_runtime::{Value, Values};
use ndarray::{Array2, Array3, ArrayD, IxDyn, s};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Two seconds of a sentence of *Sense and Sensibility*, read for LibriVox (public domain).
fn speech() -> Vec<f32> {
    let bytes = include_bytes!("speech.flac");
    let reader = AudioReader::from_bytes("speech.flac", bytes).expect("a file of audio");
    reader.read_all().expect("a whole file")
}

/// Sizes of one batch: sources of 1 to `src` tokens, then a decoder call of `tgt` tokens after
/// `past`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    batch: usize,
    src: usize,
    beams: usize,
    past: usize,
    tgt: usize,
}

const CASES: [Case; 6] = [
    Case { batch: 1, src: 1, beams: 1, past: 0, tgt: 1 },
    Case { batch: 1, src: 9, beams: 1, past: 1, tgt: 1 },
    Case { batch: 2, src: 5, beams: 3, past: 0, tgt: 1 },
    Case { batch: 3, src: 12, beams: 2, past: 17, tgt: 1 },
    Case { batch: 2, src: 7, beams: 1, past: 4, tgt: 3 },
    Case { batch: 8, src: 24, beams: 1, past: 0, tgt: 6 },
];

/// Number of sentences of random tokens, if no text is given.
const RANDOM_SENTENCES: usize = 4;

/// Maximum number of random tokens of a sentence.
const LONGEST: usize = 12;

/// Number of windows of random features.
const RANDOM_WINDOWS: usize = 1;

/// Number of positions of a cache beyond those that are filled before the step.
const SPARE_PLACES: usize = 3;

/// The cases that the model's number of positions and its layout allow: shared caches and loops
/// process one token per step.
pub(crate) fn cases(config: &Config, layout: Layout) -> impl Iterator<Item = Case> {
    let [positions, source_positions] = [config.max_positions, config.source_positions()]
        .map(|positions| positions.unwrap_or(usize::MAX));
    let longest =
        if matches!(layout, Layout::SharedCache | Layout::Generate) { 1 } else { usize::MAX };
    let features = config.front.positions();
    let sized = move |case: Case| match features {
        None => (case.src <= source_positions).then_some(case),
        // Features are read completely, and the reference takes seconds for a window of audio.
        Some(src) => Some(Case { src, batch: if case.beams == 3 { 2 } else { 1 }, ..case }),
    };
    CASES
        .into_iter()
        .filter_map(sized)
        .filter(move |case| case.past + case.tgt <= positions && case.tgt <= longest)
}

/// Random sources of a model.
pub(crate) enum RandomSources {
    Tokens(Vec<Vec<i64>>),
    Features(ArrayD<f32>),
}

impl<'a> From<&'a RandomSources> for Sources<'a> {
    fn from(sources: &'a RandomSources) -> Self {
        match sources {
            RandomSources::Tokens(tokens) => tokens.into(),
            RandomSources::Features(features) => features.into(),
        }
    }
}

/// Seeded inputs for the cases, the same on every machine.
pub(crate) struct Inputs {
    random: ChaCha8Rng,
}

impl Inputs {
    pub(crate) fn new(seed: u64) -> Self {
        Self { random: ChaCha8Rng::seed_from_u64(seed) }
    }

    fn id(&mut self, vocab: usize) -> i64 {
        i64::from(self.random.next_u32()) % vocab as i64
    }

    /// `input_ids` and `attention_mask`; the first source is the longest, the others may be padded.
    /// For models that read features, the features.
    pub(crate) fn encoder(&mut self, case: Case, config: &Config) -> Values {
        if let (Some((name, _)), Some(features)) =
            (config.front.features(), self.features(case.batch, config))
        {
            return [(name, features)].into_iter().collect();
        }
        let mut ids =
            Array2::from_shape_simple_fn((case.batch, case.src), || self.id(config.source_vocab));
        let mut mask = Array2::ones((case.batch, case.src));
        for (sentence, mut mask) in mask.outer_iter_mut().enumerate().skip(1) {
            let len = 1 + self.random.next_u32() as usize % case.src;
            for position in len..case.src {
                mask[position] = 0;
                ids[[sentence, position]] = config.source_pad(config.pad_token as i64);
            }
        }
        let mut values: Values =
            [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.into_dyn())].into_iter().collect();
        if let TokenTypes::Given(types) = config.token_types {
            let types = Array2::from_shape_simple_fn((case.batch, case.src), || self.id(types));
            values.insert(TOKEN_TYPE_IDS, types.into_dyn());
        }
        values
    }

    /// The inputs of an encoder-only model: those of the cases, and each of `sentences` separately.
    pub(crate) fn alone(&mut self, config: &Config, sentences: &[Vec<i64>]) -> Vec<Values> {
        let random: Vec<_> =
            cases(config, Layout::Cognate).map(|case| self.encoder(case, config)).collect();
        let sentence = |ids: &Vec<i64>| {
            let shape = (1, ids.len());
            let ids = Array2::from_shape_vec(shape, ids.clone()).expect("a row");
            let mut values: Values =
                [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, Array2::ones(shape).into_dyn())]
                    .into_iter()
                    .collect();
            if let TokenTypes::Given(_) = config.token_types {
                values.insert(TOKEN_TYPE_IDS, Array2::<i64>::zeros(shape).into_dyn());
            }
            values
        };
        let sentences = if config.front == Front::Tokens { sentences } else { &[] };
        random.into_iter().chain(sentences.iter().map(sentence)).collect()
    }

    /// The decoder's inputs: random tokens and pasts, and the values of `encoded`.
    pub(crate) fn decoder(
        &mut self,
        layout: Layout,
        case: Case,
        config: &Config,
        mask: Option<&Value>,
        encoded: &Values,
    ) -> Values {
        match layout {
            Layout::Cognate | Layout::Generate => self.cognate_decoder(case, config, mask, encoded),
            Layout::HuggingFace | Layout::Triton => {
                self.hugging_face_decoder(case, config, mask, encoded)
            }
            Layout::SharedCache => self.shared_cache_decoder(case, config, mask, encoded),
        }
    }

    fn cognate_decoder(
        &mut self,
        case: Case,
        config: &Config,
        mask: Option<&Value>,
        encoded: &Values,
    ) -> Values {
        let ids = Array3::from_shape_simple_fn((case.batch, case.beams, case.tgt), || {
            self.id(config.vocab)
        });
        let mut values: Values = [(INPUT_IDS, ids.into_dyn())].into_iter().collect();
        mask.into_iter().for_each(|mask| values.insert(ATTENTION_MASK, mask.clone()));
        let heads = config.decoder.key_heads;
        let shape = IxDyn(&[case.batch, case.beams, heads, case.past, config.decoder.d_k]);
        for (name, cross) in encoded.iter().filter(|(name, _)| is_cross(name)) {
            values.insert(name, cross.clone());
            values.insert(
                past_of(name).expect("a cross value has a layer"),
                self.key_or_value(&shape),
            );
        }
        values
    }

    /// There are no beams; if the decoder has a past, the cross keys and values are also a past.
    fn hugging_face_decoder(
        &mut self,
        case: Case,
        config: &Config,
        mask: Option<&Value>,
        encoded: &Values,
    ) -> Values {
        let ids = Array2::from_shape_simple_fn((case.batch, case.tgt), || self.id(config.vocab));
        let mut values: Values = [(INPUT_IDS, ids.into_dyn())].into_iter().collect();
        mask.into_iter().for_each(|mask| values.insert(ENCODER_ATTENTION_MASK, mask.clone()));
        let states = encoded.get(LAST_HIDDEN_STATE).expect("the encoder gives its states");
        values.insert(ENCODER_HIDDEN_STATES, states.clone());
        let shape = |len| IxDyn(&[case.batch, config.decoder.key_heads, len, config.decoder.d_k]);
        let covered = if case.past == 0 { 0 } else { case.src };
        for names in (0..config.decoder.n_layers).map(HuggingFaceNames::past) {
            for (name, len) in names.iter().zip([case.past, case.past, covered, covered]) {
                values.insert(name, self.key_or_value(&shape(len)));
            }
        }
        values
    }

    /// The inputs of a decoder with an encoder.
    fn shared_cache_decoder(
        &mut self,
        case: Case,
        config: &Config,
        mask: Option<&Value>,
        encoded: &Values,
    ) -> Values {
        let mut values = self.shared_caches(case, config);
        mask.into_iter().for_each(|mask| values.insert(ATTENTION_MASK, mask.clone()));
        encoded
            .iter()
            .filter(|(name, _)| is_cross(name))
            .for_each(|(name, cross)| values.insert(name, cross.clone()));
        values
    }

    /// Positions are held by any beam of the sentence, and the capacity exceeds the filled
    /// positions. In a decoder-only model the first positions of all sentences except one may be
    /// padding.
    fn shared_caches(&mut self, case: Case, config: &Config) -> Values {
        let Case { batch, beams, past, .. } = case;
        let ids = Array2::from_shape_simple_fn((batch, beams), || self.id(config.vocab));
        let mut holders = Array3::from_shape_simple_fn((batch, beams, past), || self.id(beams));
        for sentence in 1..if config.parts == Parts::Decoder && past > 0 { batch } else { 1 } {
            let padding = self.random.next_u32() as usize % past;
            holders.slice_mut(s![sentence, .., ..padding]).fill(-1);
        }
        let mut values: Values =
            [(INPUT_IDS, ids.into_dyn()), (CACHE_BEAMS, holders.into_dyn())].into_iter().collect();
        let shape = IxDyn(&[
            batch * beams,
            config.decoder.key_heads,
            past + SPARE_PLACES,
            config.decoder.d_k,
        ]);
        for name in (0..config.decoder.n_layers).flat_map(Names::past) {
            values.insert(name, self.key_or_value(&shape));
        }
        values
    }

    /// The inputs of a decoder-only model: random tokens and pasts; the first positions of all rows
    /// except one may be padding.
    pub(crate) fn causal(&mut self, layout: Layout, case: Case, config: &Config) -> Values {
        if layout == Layout::SharedCache {
            return self.shared_caches(case, config);
        }
        let Case { batch, past, tgt, .. } = case;
        let ids = Array2::from_shape_simple_fn((batch, tgt), || self.id(config.vocab));
        let mut mask = Array2::<i64>::ones((batch, past + tgt));
        let mut positions = Array2::from_shape_fn((batch, tgt), |(_, place)| (past + place) as i64);
        for row in 1..batch {
            let padding = self.random.next_u32() as usize % (past + 1);
            mask.slice_mut(s![row, ..padding]).fill(0);
            positions.row_mut(row).mapv_inplace(|position| position - padding as i64);
        }
        let mut values: Values =
            [(INPUT_IDS, ids.into_dyn()), (ATTENTION_MASK, mask.into_dyn())].into_iter().collect();
        let is_optimum = layout.is_optimum();
        if is_optimum {
            values.insert(POSITION_IDS, positions.into_dyn());
        }
        let shape = IxDyn(&[batch, config.decoder.key_heads, past, config.decoder.d_k]);
        for layer_index in 0..config.decoder.n_layers {
            let names = if is_optimum {
                HuggingFaceNames::past_alone(layer_index)
            } else {
                Names::past(layer_index)
            };
            names.iter().for_each(|name| values.insert(name, self.key_or_value(&shape)));
        }
        values
    }

    /// Features for a model that reads them: pixels uniform in ±1, and frames of speech.
    fn features(&mut self, batch: usize, config: &Config) -> Option<ArrayD<f32>> {
        let (_, sizes) = config.front.features()?;
        Some(match (config.front, &sizes[..]) {
            (Front::Frames { .. }, &[n_mels, n_frames]) => {
                let mut features = Array3::zeros((batch, n_mels, n_frames));
                for mut window in features.outer_iter_mut() {
                    window.assign(&self.frames(n_mels, n_frames));
                }
                features.into_dyn()
            }
            _ => self.key_or_value(&IxDyn(&[&[batch][..], &sizes].concat())),
        })
    }

    /// Log-mel features of speech that begins within a second, before silence; of a part of it, if
    /// the window is shorter. Models amplify rounding on what they were not trained on: by Whisper
    /// tiny.en, PyTorch's f32 differs from its f64 by 1e-6 on speech, and by up to 6e-6 on synthetic
    /// vowels.
    fn frames(&mut self, n_mels: usize, n_frames: usize) -> Array2<f32> {
        let extractor = FeatureExtractor::whisper(n_mels);
        let speech = speech();
        let mut samples = vec![0.0; n_frames * extractor.hop()];
        let mut uniform = || (self.random.next_u32() >> 8) as f32 / (1 << 24) as f32;
        let (place, gain) = (uniform(), 0.3 + uniform());
        let free = samples.len().abs_diff(speech.len()).min(SAMPLE_RATE as usize);
        let first = (place * free as f32) as usize;
        let is_long = samples.len() > speech.len();
        let (to, from) = if is_long { (first, 0) } else { (0, first) };
        for (to, from) in samples[to..].iter_mut().zip(&speech[from..]) {
            *to = gain * from;
        }
        extractor.extract(&samples)
    }

    /// Uniform in ±1, the typical size of keys and values.
    fn key_or_value(&mut self, shape: &IxDyn) -> ArrayD<f32> {
        ArrayD::from_shape_simple_fn(shape.clone(), || {
            (self.random.next_u32() >> 8) as f32 / (1 << 23) as f32 - 1.0
        })
    }

    /// Those `given` of at most `limit` tokens, or random ones if there are none.
    pub(crate) fn sources(
        &mut self,
        given: &[Vec<i64>],
        config: &Config,
        limit: Option<usize>,
    ) -> RandomSources {
        if let Some(features) = self.features(RANDOM_WINDOWS, config) {
            return RandomSources::Features(features);
        }
        let fits = |source: &&Vec<i64>| limit.is_none_or(|limit| source.len() <= limit);
        let given: Vec<_> = given.iter().filter(fits).cloned().collect();
        if given.is_empty() {
            return RandomSources::Tokens(self.sentences(config, limit));
        }
        RandomSources::Tokens(given)
    }

    fn sentences(&mut self, config: &Config, limit: Option<usize>) -> Vec<Vec<i64>> {
        let longest =
            [config.source_positions(), limit].into_iter().flatten().fold(LONGEST, usize::min);
        (0..RANDOM_SENTENCES)
            .map(|_| {
                let len = 1 + self.random.next_u32() as usize % longest;
                (1..len)
                    .map(|_| self.id(config.source_vocab))
                    .chain([config.of_encoder().eos_token as i64])
                    .collect()
            })
            .collect()
    }
}
