//! Resampling of a mono stream to [`SAMPLE_RATE`].

use crate::SAMPLE_RATE;
use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Indexing, Resampler as _};

/// Resamples block by block, without delay: the first output sample belongs to the first input
/// sample.
pub(crate) struct Resampler {
    /// `None` if the input has the output's rate. In f64, like the transforms of features, so that
    /// the code is compiled for only one type.
    fft: Option<Fft<f64>>,
    rate: u32,
    /// Input that does not fill a chunk.
    pending: Vec<f32>,
    chunk: Vec<f64>,
    /// Number of output samples of the filter's delay that remain to be dropped.
    delay: usize,
    n_in: u64,
    n_out: u64,
}

impl Resampler {
    /// A resampler for input of `rate` Hz; the error is rubato's.
    pub(crate) fn new(rate: u32) -> Result<Self, String> {
        // Chunks of about 50 ms in one transform: a longer filter has a steeper edge. With an odd
        // length, its delay would not be a whole number of samples.
        let unit = rate / gcd(rate, SAMPLE_RATE);
        let chunk = (unit * (rate / 20).div_ceil(unit).next_multiple_of(2)) as usize;
        let fft = match rate {
            SAMPLE_RATE => None,
            _ => Some(
                Fft::new_custom(
                    rate as usize,
                    SAMPLE_RATE as usize,
                    chunk,
                    1,
                    1,
                    rubato::WindowFunction::BlackmanHarris2,
                    FixedSync::Input,
                )
                .map_err(|error| error.to_string())?,
            ),
        };
        let delay = fft.as_ref().map_or(0, |fft| fft.output_delay());
        Ok(Self { fft, rate, pending: Vec::new(), chunk: Vec::new(), delay, n_in: 0, n_out: 0 })
    }

    /// Resamples `samples`, and appends complete chunks to `out`.
    pub(crate) fn push(&mut self, samples: &[f32], out: &mut Vec<f32>) {
        self.n_in += samples.len() as u64;
        let Some(size) = self.fft.as_ref().map(|fft| fft.input_frames_next()) else {
            self.n_out += samples.len() as u64;
            return out.extend_from_slice(samples);
        };
        self.pending.extend_from_slice(samples);
        let mut begin = 0;
        while self.pending.len() - begin >= size {
            self.chunk(begin, size, out);
            begin += size;
        }
        self.pending.drain(..begin);
    }

    /// Appends the rest: in total, `input samples · SAMPLE_RATE / rate`, rounded up.
    pub(crate) fn finish(&mut self, out: &mut Vec<f32>) {
        if self.fft.is_none() {
            return;
        }
        let total = self.n_in.saturating_mul(SAMPLE_RATE.into()).div_ceil(self.rate.into());
        let mut rest = self.pending.len();
        while self.n_out < total {
            self.chunk(0, rest, out);
            rest = 0;
        }
        out.truncate(out.len() - (self.n_out - total) as usize);
    }

    /// Resamples one chunk: `length` pending samples from `begin`, and zeros.
    fn chunk(&mut self, begin: usize, length: usize, out: &mut Vec<f32>) {
        let Some(fft) = &mut self.fft else { return };
        self.chunk.clear();
        self.chunk.extend(self.pending[begin..][..length].iter().map(|&sample| f64::from(sample)));
        self.chunk.resize(fft.input_frames_next(), 0.0);
        let (n_input, n_output) = (self.chunk.len(), fft.output_frames_next());
        let mut output = vec![0.0; n_output];
        let input =
            InterleavedSlice::new(&self.chunk, 1, n_input).expect("one channel of this length");
        let mut adapter = InterleavedSlice::new_mut(&mut output, 1, n_output)
            .expect("one channel of this length");
        let (_, written) = fft
            .process_into_buffer(&input, &mut adapter, None::<&Indexing>)
            .expect("buffers have the sizes that rubato asks for");
        let dropped = self.delay.min(written);
        self.delay -= dropped;
        out.extend(output[dropped..written].iter().map(|&sample| sample as f32));
        self.n_out += (written - dropped) as u64;
    }
}

fn gcd(one: u32, other: u32) -> u32 {
    if other == 0 { one } else { gcd(other, one % other) }
}
