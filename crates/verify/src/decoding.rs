//! Sentences decoded freely, and along given tokens, until the verification is cancelled.

use crate::error::check;
use crate::{Error, Result};
use cognate_folder::StepsReport;
use cognate_generate::{
    Decoder, Hypothesis, SentenceBatch, Settings, Sources, decode, greedy_steps,
};
use cognate_pipeline::CancellationToken;
use std::ops::ControlFlow;

/// Sentences, how they are decoded, and what cancels it.
#[derive(Clone, Copy)]
pub(crate) struct Decoding<'a> {
    pub(crate) sources: Sources<'a>,
    pub(crate) settings: &'a Settings,
    pub(crate) cancellation: &'a CancellationToken,
}

impl Decoding<'_> {
    /// The best hypothesis of each sentence.
    pub(crate) fn generate(self, decoder: &mut dyn Decoder) -> Result<Vec<Hypothesis>> {
        let batch = SentenceBatch::new(self.sources);
        let decoded = decode(decoder, &batch, self.settings, &mut |_| self.proceed());
        let decoded = decoded.map_err(|error| Error::runtime(decoder.engine(), error))?;
        check(self.cancellation)?;
        Ok(decoded.into_iter().filter_map(|found| found.into_iter().next()).collect())
    }

    /// The choices of greedy decoding, each after the tokens `expected`, of which the share
    /// `wanted` must be equal, and the logits of all steps.
    pub(crate) fn along(
        self,
        decoder: &mut dyn Decoder,
        expected: &[Hypothesis],
        wanted: f64,
    ) -> Result<(StepsReport, Vec<f32>)> {
        let mut logits = Vec::new();
        let found = greedy_steps(decoder, self.sources, expected, self.settings, |row| {
            logits.extend_from_slice(row);
            self.proceed()
        });
        let found = found.map_err(|error| Error::runtime(decoder.engine(), error))?;
        check(self.cancellation)?;
        let mut report = StepsReport { steps: 0, equal: 0, wanted: 0 };
        for (found, expected) in found.iter().zip(expected) {
            for (index, token) in found.iter().enumerate() {
                let is_equal = expected.tokens.get(index).map_or_else(
                    || self.settings.eos_tokens.contains(token),
                    |expected| expected == token,
                );
                report.steps += 1;
                report.equal += usize::from(is_equal);
            }
        }
        report.wanted = least_equal(report.steps, wanted);
        Ok((report, logits))
    }

    fn proceed(self) -> ControlFlow<()> {
        match self.cancellation.is_cancelled() {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// The least number of equal steps for a share of them. A share below 1 lets one step differ, also
/// where it is of fewer steps than that takes: 1 of 93 differs in a model of width 16 in f16.
fn least_equal(steps: usize, share: f64) -> usize {
    let least = (share * steps as f64).ceil() as usize;
    if share < 1.0 { least.min(steps.saturating_sub(1)) } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_step_may_differ_where_not_all_must_be_equal() {
        let least = [(0, 0.99), (1, 0.99), (93, 0.99), (160, 0.99), (1000, 0.99), (93, 1.0)]
            .map(|(steps, share)| least_equal(steps, share));
        assert_eq!(least, [0, 0, 92, 159, 990, 93]);
    }
}
