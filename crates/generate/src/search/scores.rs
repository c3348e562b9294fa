//! The best continuations of each beam under the constraints, as in `constraints.rs`.
//!
//! Forbidden tokens are few, so their scores are changed where they are. Penalties of repetition read the tokens so far and write the
//! scores of the whole vocabulary: they are in a loop of at most one iteration, which a search without them does not enter.

use super::beams::{Fixed, reads_source};
use super::body::Captured;
use super::repetition::Target;
use super::{and, larger, less, not, or};
use crate::{Result, Settings};
use cognate_graph::{Builder, DType, Dim, Repeat, Shape, Tensor, concat};

/// The constraints of a step.
pub(super) struct Constraints<'s, 'i> {
    pub(super) settings: &'s Settings,
    /// The number of the step, from 0.
    pub(super) iteration: Tensor<'i>,
    /// The tokens so far: `[batch, beams, length]`.
    pub(super) running: Tensor<'i>,
    pub(super) fixed: &'s Fixed<'i>,
    /// The largest number of tokens.
    pub(super) most: usize,
}

impl<'i> Constraints<'_, 'i> {
    /// The scores and the tokens of the best continuations, `[batch, beams, F K]`, from `logits: [batch, beams, vocab]`.
    pub(super) fn best(&self, logits: Tensor<'i>, is_last: Tensor<'i>) -> Result<[Tensor<'i>; 2]> {
        let scores = self.forbid(logits.log_softmax());
        let scores = if self.settings.renormalize { scores.log_softmax() } else { scores };
        let [scores, tokens] = self.penalise(logits, scores.top_k("width"))?;
        Ok(self.forced(scores, tokens, is_last))
    }

    /// The best continuations, or drawn ones, where a token is forced.
    pub(super) fn forced(&self, mut scores: Tensor<'i>, mut tokens: Tensor<'i>, is_last: Tensor<'i>) -> [Tensor<'i>; 2] {
        let builder = scores.builder();
        let is_single = scores.dim(2).as_constant() == Some(1);
        let is_first = if is_single { builder.integer(1).cast(DType::Bool) } else { self.is_best(builder) };
        let (zero, never) = (builder.integer(0), builder.scalar(f32::NEG_INFINITY));
        let forced_bos = self.fixed.forced_bos_token;
        let forced = [
            Some((forced_bos, and(self.iteration.equal(zero), zero.less_or_equal(forced_bos)))),
            self.settings.forced_eos_token.map(|token| (builder.integer(token), is_last)),
        ];
        for (token, is_forced) in forced.into_iter().flatten() {
            tokens = and(is_forced, is_first).select(token, tokens);
            scores = is_forced.select(is_first.select(builder.scalar(0.0), never), scores);
        }
        [scores, tokens]
    }

    /// The number of tokens so far.
    fn cur(&self) -> Tensor<'i> {
        self.iteration + self.iteration.builder().integer(1)
    }

    /// The best continuations with the penalties of repetition, if there are any.
    fn penalise(&self, logits: Tensor<'i>, best: [Tensor<'i>; 2]) -> Result<[Tensor<'i>; 2]> {
        let (builder, fixed) = (logits.builder(), self.fixed);
        let is_penalised = not(fixed.repetition_penalty.equal(builder.scalar(1.0)));
        let condition = match reads_source(self.settings) {
            true => builder.integer(1).cast(DType::Bool),
            false => or(is_penalised, less(builder.integer(0), fixed.no_repeat_ngram_size)),
        };
        let inner = Builder::new("penalties");
        inner.input("penalties.iteration", DType::I64, Shape::default());
        for (name, value) in ["penalties.scores", "penalties.tokens"].into_iter().zip(best) {
            inner.input(name, value.ty().dtype, value.ty().shape);
        }
        let mut captured = Captured::new(&inner, "penalties");
        {
            let _scope = inner.root().at("penalties").enter();
            let fixed = fixed.read(&mut captured);
            let [logits, iteration, running] = [logits, self.iteration, self.running].map(|value| captured.read(value));
            let inside = Constraints { settings: self.settings, iteration, running, fixed: &fixed, most: self.most };
            let [scores, tokens] = inside.penalised(logits)?;
            inner.output("penalties.next.condition", inner.integer(0).cast(DType::Bool));
            inner.output("penalties.next.scores", scores);
            inner.output("penalties.next.tokens", tokens);
        }
        let outside = captured.outside;
        let body = inner.finish()?;
        let last = builder.repeat(Repeat { body, most: 1, condition, carried: &best, captured: &outside });
        Ok([last[0], last[1]])
    }

    /// The best continuations with penalties. With one beam they are chosen by logits, as in greedy search.
    fn penalised(&self, logits: Tensor<'i>) -> Result<[Tensor<'i>; 2]> {
        let builder = logits.builder();
        let is_greedy = self.fixed.beams.equal(builder.integer(1));
        let (choice, log) = self.constrained(is_greedy.select(logits, logits.log_softmax()), logits)?;
        let [_, tokens] = choice.top_k("width");
        // The order of the logits decides, not that of their log-probabilities.
        let is_second = and(is_greedy, not(self.is_best(builder)));
        Ok([is_second.select(builder.scalar(f32::NEG_INFINITY), log.gather_elements(tokens)), tokens])
    }

    /// `base: [batch, beams, vocab]` and the log-probabilities of `logits` under all constraints but forced tokens.
    pub(super) fn constrained(&self, base: Tensor<'i>, logits: Tensor<'i>) -> Result<(Tensor<'i>, Tensor<'i>)> {
        let (builder, fixed, settings) = (logits.builder(), self.fixed, self.settings);
        let log = logits.log_softmax();
        let zeros = builder.scalar(0.0).expand(log.ty().shape);
        // Positions without a token count as the first one, which is there in any case.
        let own = less(fixed.places, self.cur()).select(self.running, builder.integer(settings.start_token));
        let mut penalties = Vec::new();
        let mut forbidden = self.forbid(zeros);
        let target = Target { running: self.running, cur: self.cur(), most: self.most };
        let mut forbid = |seen, is_token, n| -> Result<()> {
            let (tokens, is_met) = target.repeated(seen, is_token, n)?;
            let never = is_met.select(builder.scalar(f32::NEG_INFINITY), builder.scalar(0.0));
            forbidden = forbidden.scatter_elements(tokens, never);
            Ok(())
        };
        let ones = |ids: Tensor<'i>| builder.scalar(1.0).expand(ids.ty().shape);
        if let Some([ids, mask]) = fixed.source {
            let [batch, beams, src] = [log.dim(0), log.dim(1), ids.dim(1)];
            let each = |value: Tensor<'i>| value.reshape([&batch, &1.into(), &src]).expand([&batch, &beams, &src]);
            let is_token = less(builder.integer(0), mask);
            if settings.encoder_repetition_penalty != 1.0 {
                let ids = each(is_token.select(ids, ids.slice(1, 0, 1)));
                penalties.push((zeros.scatter_elements(ids, ones(ids)), builder.scalar(1.0 / settings.encoder_repetition_penalty)));
            }
            if settings.encoder_no_repeat_ngram_size > 0 {
                let n = builder.integer(settings.encoder_no_repeat_ngram_size as i64);
                forbid(each(ids), each(is_token.cast(DType::I64)), n)?;
            }
        }
        penalties.push((zeros.scatter_elements(own, ones(own)), fixed.repetition_penalty));
        let is_token = less(fixed.places, self.cur()).cast(DType::I64).expand(self.running.ty().shape);
        forbid(self.running, is_token, fixed.no_repeat_ngram_size)?;

        let constrained = |x: Tensor<'i>| {
            let penalised = penalties.iter().fold(x, |x, &(counts, penalty)| {
                let less_likely = less(x, builder.scalar(0.0)).select(x * penalty, x / penalty);
                less(builder.scalar(0.0), counts).select(less_likely, x)
            });
            penalised + forbidden
        };
        let log = constrained(log);
        Ok((constrained(base), if settings.renormalize { log.log_softmax() } else { log }))
    }

    /// Whether a continuation is the best of its beam: `[1, 1, F K]`.
    fn is_best(&self, builder: &'i Builder) -> Tensor<'i> {
        self.fixed.ranks.equal(builder.integer(0)).reshape([Dim::from(1), 1.into(), "width".into()])
    }

    /// Scores with those of forbidden tokens minus infinity.
    fn forbid(&self, scores: Tensor<'i>) -> Tensor<'i> {
        let builder = scores.builder();
        let Settings { bad_words, eos_tokens, suppressed_tokens, suppressed_first_tokens, .. } = self.settings;
        let shape = |n: usize| -> Shape { [Dim::from("batch"), "beams".into(), n.into()].into() };
        let never = builder.scalar(f32::NEG_INFINITY);
        let when = |condition: Tensor<'i>| condition.select(never, builder.scalar(0.0));
        let cur = self.cur();
        let first_choice = or(
            and(self.iteration.equal(builder.integer(0)), less(self.fixed.forced_bos_token, builder.integer(0))),
            and(self.iteration.equal(builder.integer(1)), builder.integer(0).less_or_equal(self.fixed.forced_bos_token)),
        );
        let vocab = scores.dim(2).as_constant().unwrap_or(0);
        let known = |tokens: &[i64]| tokens.iter().copied().filter(|token| (0..vocab).contains(token)).collect::<Vec<_>>();
        let words: Vec<_> = bad_words.iter().filter(|word| word.len() == 1 && !eos_tokens.contains(&word[0])).map(|word| word[0]).collect();
        let always = known(&[words, suppressed_tokens.clone()].concat());
        // transformers requires as many tokens as the word has, although one fewer precedes its last.
        let due = |word: &Vec<i64>| {
            let (last, before) = word.split_last().filter(|(_, before)| !before.is_empty())?;
            let is_there = |(index, &token): (usize, &i64)| {
                let place = larger(cur - builder.integer((before.len() - index) as i64), builder.integer(0));
                self.running.gather_elements(place.expand(shape(1))).equal(builder.integer(token))
            };
            let is_long = builder.integer(word.len() as i64).less_or_equal(cur);
            Some((known(&[*last]), when(before.iter().enumerate().map(is_there).fold(is_long, and))))
        };
        let parts = [
            (always, never),
            (known(eos_tokens), when(less(cur, self.fixed.min_length))),
            (known(suppressed_first_tokens), when(first_choice)),
        ];
        let parts: Vec<_> = parts.into_iter().chain(bad_words.iter().filter_map(due)).filter(|(tokens, _)| !tokens.is_empty()).collect();
        let tokens: Vec<i64> = parts.iter().flat_map(|(tokens, _)| tokens.clone()).collect();
        if tokens.is_empty() {
            return scores;
        }
        let updates: Vec<_> = parts.iter().map(|(tokens, update)| update.expand(shape(tokens.len()))).collect();
        let n = tokens.len();
        scores.scatter_elements(builder.integers(tokens).expand(shape(n)), concat(2, &updates))
    }
}
