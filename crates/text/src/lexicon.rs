//! Translations of tokens, learned from parallel text: IBM Model 1 (Brown et al. 1993, "The
//! Mathematics of Statistical Machine Translation", section 4.2) by expectation maximisation.

use std::ops::Range;

/// Parallel sentences as tokens, 4 bytes per token.
#[derive(Clone, Debug, Default)]
pub struct ParallelTokens {
    tokens: Vec<u32>,
    /// The ends of each sentence's source and target.
    ends: Vec<[usize; 2]>,
}

/// Target tokens with their probabilities for each source token.
#[derive(Clone, Debug)]
pub struct Lexicon {
    /// The range of targets of each source token.
    ranges: Vec<Range<usize>>,
    /// In ascending order within a range.
    targets: Vec<u32>,
    probabilities: Vec<f32>,
    /// The number of occurrences of each target token.
    counts: Vec<u64>,
}

/// Number of iterations of expectation maximisation.
const ROUNDS: usize = 5;

/// Maximum number of targets of a source token: those that occur most often with it. It bounds the
/// memory for long texts.
const MOST_TARGETS: usize = 1000;

impl ParallelTokens {
    /// Adds a sentence and its translation. Ids that are not tokens are left out.
    pub fn push(&mut self, source: &[i64], target: &[i64]) {
        let end = |tokens: &mut Vec<u32>, ids: &[i64]| {
            tokens.extend(ids.iter().filter_map(|&id| u32::try_from(id).ok()));
            tokens.len()
        };
        let ends = [end(&mut self.tokens, source), end(&mut self.tokens, target)];
        self.ends.push(ends);
    }

    /// The number of sentences.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The tokens of a sentence and of its translation.
    fn pair(&self, sentence: usize) -> [&[u32]; 2] {
        let start = sentence.checked_sub(1).map_or(0, |before| self.ends[before][1]);
        let [middle, end] = self.ends[sentence];
        [&self.tokens[start..middle], &self.tokens[middle..end]]
    }

    /// One more than the largest id of a source or of a target.
    fn sizes(&self) -> [usize; 2] {
        let largest =
            |side: usize| (0..self.len()).flat_map(|sentence| self.pair(sentence)[side]).max();
        [0, 1].map(|side| largest(side).map_or(0, |&id| id as usize + 1))
    }
}

impl Lexicon {
    /// Learns from sentences. `progress` is called with the completed share of the work.
    pub fn learn(text: &ParallelTokens, mut progress: impl FnMut(f64)) -> Self {
        let mut lexicon = Self::of_neighbours(text);
        for round in 0..ROUNDS {
            progress(round as f64 / ROUNDS as f64);
            lexicon.improve(text);
        }
        progress(1.0);
        lexicon
    }

    /// Equal probabilities of the targets that occur with a source token.
    fn of_neighbours(text: &ParallelTokens) -> Self {
        let [n_sources, n_targets] = text.sizes();
        // The sentences of each source token, in one list.
        let mut starts = vec![0; n_sources + 1];
        let each = |visit: &mut dyn FnMut(usize, usize)| {
            for sentence in 0..text.len() {
                let mut sources = text.pair(sentence)[0].to_vec();
                sources.sort_unstable();
                sources.dedup();
                sources.into_iter().for_each(|source| visit(source as usize, sentence));
            }
        };
        each(&mut |source, _| starts[source + 1] += 1);
        (0..n_sources).for_each(|source| starts[source + 1] += starts[source]);
        let (mut sentences, mut free) = (vec![0_u32; starts[n_sources]], starts.clone());
        each(&mut |source, sentence| {
            sentences[free[source]] = sentence as u32;
            free[source] += 1;
        });
        let mut counts = vec![0; n_targets];
        (0..text.len())
            .flat_map(|sentence| text.pair(sentence)[1])
            .for_each(|&target| counts[target as usize] += 1);
        let (mut ranges, mut targets, mut probabilities) =
            (Vec::with_capacity(n_sources), Vec::new(), Vec::new());
        let mut beside = vec![0_u32; n_targets];
        for source in 0..n_sources {
            let mut met = Vec::new();
            for &sentence in &sentences[starts[source]..starts[source + 1]] {
                for &target in text.pair(sentence as usize)[1] {
                    if beside[target as usize] == 0 {
                        met.push(target);
                    }
                    beside[target as usize] += 1;
                }
            }
            met.sort_unstable_by_key(|&target| {
                (std::cmp::Reverse(beside[target as usize]), target)
            });
            met.iter().for_each(|&target| beside[target as usize] = 0);
            met.truncate(MOST_TARGETS);
            met.sort_unstable();
            let start = targets.len();
            targets.extend(&met);
            probabilities.resize(targets.len(), 1.0 / met.len() as f32);
            ranges.push(start..targets.len());
        }
        Self { ranges, targets, probabilities, counts }
    }

    /// One iteration. A target token is generated by a source token, or by none.
    fn improve(&mut self, text: &ParallelTokens) {
        let total = self.counts.iter().sum::<u64>().max(1) as f32;
        let mut expected = vec![0.0_f32; self.probabilities.len()];
        let mut places = Vec::new();
        for sentence in 0..text.len() {
            let [sources, targets] = text.pair(sentence);
            for &target in targets {
                // By none in proportion to its frequency.
                let mut sum = self.counts[target as usize] as f32 / total;
                places.clear();
                for &source in sources {
                    if let Some(place) = self.place(source, target) {
                        sum += self.probabilities[place];
                        places.push(place);
                    }
                }
                places.iter().for_each(|&place| expected[place] += self.probabilities[place] / sum);
            }
        }
        for range in &self.ranges {
            let sum =
                expected[range.clone()].iter().map(|&share| f64::from(share)).sum::<f64>() as f32;
            if sum > 0.0 {
                self.probabilities[range.clone()]
                    .iter_mut()
                    .zip(&expected[range.clone()])
                    .for_each(|(p, share)| *p = share / sum);
            }
        }
    }

    fn place(&self, source: u32, target: u32) -> Option<usize> {
        let range = self.ranges.get(source as usize)?;
        self.targets[range.clone()].binary_search(&target).ok().map(|place| range.start + place)
    }

    /// The source tokens that occur, in ascending order.
    pub fn sources(&self) -> impl Iterator<Item = i64> {
        (0..).zip(&self.ranges).filter(|(_, range)| !range.is_empty()).map(|(source, _)| source)
    }

    /// The translations of a source token with their probabilities, most probable first, ties by
    /// id.
    pub fn translations(&self, source: i64) -> Vec<(i64, f32)> {
        let range = usize::try_from(source)
            .ok()
            .and_then(|source| self.ranges.get(source))
            .cloned()
            .unwrap_or_default();
        let mut found: Vec<_> = range
            .map(|place| (i64::from(self.targets[place]), self.probabilities[place]))
            .collect();
        found.sort_by(|(a, p), (b, q)| q.total_cmp(p).then(a.cmp(b)));
        found
    }

    /// The `count` most frequent target tokens, most frequent first.
    pub fn frequent(&self, count: usize) -> Vec<i64> {
        let mut tokens: Vec<_> =
            (0..self.counts.len()).filter(|&token| self.counts[token] > 0).collect();
        tokens.sort_by_key(|&token| (std::cmp::Reverse(self.counts[token]), token));
        tokens.into_iter().take(count).map(|token| token as i64).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// The idea of section 4.2: a token that occurs with the same one in different contexts is its
    /// translation.
    #[test]
    fn translations_are_what_company_tells() {
        let (das, haus, buch, ein) = (1, 2, 3, 4);
        let (the, house, book, a) = (11, 12, 13, 14);
        let mut text = ParallelTokens::default();
        for (source, target) in
            [([das, haus], [the, house]), ([das, buch], [the, book]), ([ein, buch], [a, book])]
        {
            text.push(&source, &target);
        }
        let lexicon = Lexicon::learn(&text, |_| {});
        for (source, target) in [(das, the), (haus, house), (buch, book), (ein, a)] {
            let found = lexicon.translations(source);
            assert_eq!(found[0].0, target, "{source}: {found:?}");
            assert!(
                (found.iter().map(|(_, p)| p).sum::<f32>() - 1.0).abs() < 1e-5,
                "{source}: {found:?}"
            );
        }
        assert_eq!(lexicon.sources().collect::<Vec<_>>(), [1, 2, 3, 4]);
        assert_eq!(lexicon.frequent(2), [the, book]);
        assert!(lexicon.translations(99).is_empty() && lexicon.translations(-1).is_empty());
    }

    /// By the definition, with a map instead of ranges.
    #[test]
    fn probabilities_are_those_of_the_definition() {
        let mut text = ParallelTokens::default();
        for sentence in 0..40_i64 {
            let ids = |seed: i64, len: i64| {
                (0..len).map(|place| (sentence * 7 + place * seed) % 9).collect::<Vec<_>>()
            };
            text.push(&ids(3, 2 + sentence % 4), &ids(5, 1 + sentence % 5));
        }
        let mut expected = BTreeMap::<(u32, u32), f64>::new();
        let mut counts = [0.0; 9];
        for sentence in 0..text.len() {
            let [sources, targets] = text.pair(sentence);
            targets.iter().for_each(|&target| counts[target as usize] += 1.0);
            expected.extend(
                sources
                    .iter()
                    .flat_map(|&source| targets.iter().map(move |&target| ((source, target), 1.0))),
            );
        }
        let normalise = |table: &mut BTreeMap<(u32, u32), f64>| {
            let mut sums = [0.0; 9];
            table.iter().for_each(|((source, _), p)| sums[*source as usize] += p);
            table.iter_mut().for_each(|((source, _), p)| *p /= sums[*source as usize]);
        };
        normalise(&mut expected);
        for _ in 0..ROUNDS {
            let mut next: BTreeMap<_, _> = expected.keys().map(|pair| (*pair, 0.0)).collect();
            for sentence in 0..text.len() {
                let [sources, targets] = text.pair(sentence);
                for &target in targets {
                    let none = counts[target as usize] / counts.iter().sum::<f64>();
                    let sum = none
                        + sources.iter().map(|&source| expected[&(source, target)]).sum::<f64>();
                    sources.iter().for_each(|&source| {
                        *next.get_mut(&(source, target)).expect("a pair") +=
                            expected[&(source, target)] / sum
                    });
                }
            }
            normalise(&mut next);
            expected = next;
        }
        let lexicon = Lexicon::learn(&text, |_| {});
        for (&(source, target), &p) in &expected {
            let found =
                lexicon.place(source, target).map_or(0.0, |place| lexicon.probabilities[place]);
            assert!((f64::from(found) - p).abs() < 1e-5, "{source} {target}: {found} {p}");
        }
    }
}
