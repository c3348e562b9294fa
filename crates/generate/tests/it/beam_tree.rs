//! The tree of a beam search: its ends are transformers' hypotheses, and its sums those of given
//! targets.

use crate::golden::{reference, sources};
use cognate_generate::{BeamTree, Decoder, Hypothesis, SentenceBatch, Settings, beam_tree, score};
use cognate_testing::Golden;

#[test]
fn a_tree_ends_in_transformers_hypotheses() {
    for name in ["marian", "bart", "t5"] {
        let expected = Golden::open(name);
        let (mut decoder, mut settings) = reference(name);
        (settings.max_new_tokens, settings.num_beams) = (24, 4);
        let scores = &expected.floats("beam4_scores").data;
        for (sentence, source) in sources(&expected).into_iter().enumerate() {
            let mut search = |prefix: &[i64]| {
                beam_tree(&mut decoder, std::slice::from_ref(&source).into(), prefix, &settings)
                    .unwrap()
            };
            let (hypotheses, tree) = search(&[]);
            // The tree after a prefix: that of the worst hypothesis.
            let prefix = hypotheses[3].tokens[..3].to_vec();
            let after = search(&prefix);
            assert!(
                after.0.iter().all(|hypothesis| hypothesis.tokens.starts_with(&prefix)),
                "{name}"
            );
            sums_are_the_models(&mut decoder, &source, &after, &settings);
            let ends = sums_are_the_models(&mut decoder, &source, &(hypotheses, tree), &settings);
            for (found, expected) in ends.iter().zip(&scores[4 * sentence..]) {
                assert!((found - expected).abs() < 1e-4, "{name}");
            }
        }
    }
}

/// Returns the scores of the finished hypotheses, the best first.
fn sums_are_the_models(
    decoder: &mut dyn Decoder,
    source: &Vec<i64>,
    (hypotheses, tree): &(Vec<Hypothesis>, BeamTree),
    settings: &Settings,
) -> Vec<f32> {
    let mut ends: Vec<_> =
        (0..tree.nodes.len()).filter(|&node| tree.nodes[node].finished.is_some()).collect();
    ends.sort_by_key(|&node| tree.nodes[node].finished.unwrap().0);
    assert_eq!(ends.len(), 4);
    for (&end, hypothesis) in ends.iter().zip(hypotheses) {
        let mut path = Vec::new();
        let mut node = end;
        while let Some(parent) = tree.nodes[node].parent {
            path.push(node);
            node = parent;
        }
        path.reverse();
        let tokens: Vec<_> =
            path.iter().map(|&node| tree.nodes[node].token).take(hypothesis.tokens.len()).collect();
        assert_eq!(tokens, hypothesis.tokens);
        // Under the model alone, as when the target is given.
        let found =
            score(decoder, &SentenceBatch::new(std::slice::from_ref(source)), &[tokens], settings)
                .unwrap();
        let mut sum = 0.0;
        for (&node, log) in path.iter().zip(&found[0].log_probabilities) {
            sum += log;
            let forced = settings.forced_bos_token.is_some() || settings.forced_eos_token.is_some();
            let known = tree.nodes[node].log_probability;
            assert!(forced && node == end || (known - sum).abs() < 1e-3, "{known} {sum}");
        }
    }
    ends.iter().map(|&end| tree.nodes[end].finished.unwrap().1).collect()
}
