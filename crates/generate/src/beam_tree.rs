//! The tree of all hypotheses of a beam search.

use crate::batch::SentenceBatch;
use crate::scores::log_softmax;
use crate::{Decoder, Hypothesis, Logits, Result, Settings, Sources, decode};
use ndarray::{Array2, Array4};
use std::ops::ControlFlow;

/// All running and finished hypotheses of a search; equal prefixes share their nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct BeamTree {
    /// Each after its parent; the first is the start token.
    pub nodes: Vec<BeamNode>,
}

/// A token of the tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BeamNode {
    /// The token.
    pub token: i64,
    /// The token before it.
    pub parent: Option<usize>,
    /// The model's log-probability of all tokens up to this one.
    pub log_probability: f32,
    /// The rank of the finished hypothesis that ends here, from 0, and its score.
    pub finished: Option<(usize, f32)>,
}

impl BeamTree {
    /// The children of a node in the order of decoding.
    pub fn children(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        (node + 1..self.nodes.len()).filter(move |&child| self.nodes[child].parent == Some(node))
    }

    fn child(&self, node: usize, token: i64) -> Option<usize> {
        self.children(node).find(|&child| self.nodes[child].token == token)
    }

    fn push(&mut self, parent: Option<usize>, token: i64, log_probability: f32) -> usize {
        self.nodes.push(BeamNode { token, parent, log_probability, finished: None });
        self.nodes.len() - 1
    }
}

/// Decodes one source by beam search after `prefix`: all finished hypotheses, the best first, and
/// the tree.
///
/// # Errors
/// As [`decode`].
pub fn beam_tree(
    decoder: &mut dyn Decoder,
    source: Sources<'_>,
    prefix: &[i64],
    settings: &Settings,
) -> Result<(Vec<Hypothesis>, BeamTree)> {
    let settings = Settings {
        num_return_sequences: settings.num_beams.max(1),
        scores: true,
        sampling: None,
        ..settings.clone()
    };
    let mut watching = Watching {
        inner: decoder,
        tree: BeamTree { nodes: Vec::new() },
        running: Vec::new(),
        scores: Vec::new(),
    };
    let batch = SentenceBatch { prefixes: &[prefix.to_vec()], ..SentenceBatch::new(source) };
    let found = decode(&mut watching, &batch, &settings, &mut |_| ControlFlow::Continue(()))?;
    let (mut tree, hypotheses) = (watching.tree, found.into_iter().next().unwrap_or_default());
    let before = prefix.iter().try_fold(0, |node, &token| tree.child(node, token));
    let before = before.map_or(0.0, |node| tree.nodes[node].log_probability);
    for (rank, hypothesis) in hypotheses.iter().enumerate() {
        let end = settings.eos_tokens.first().copied().filter(|_| hypothesis.complete);
        let path: Vec<_> = hypothesis.tokens.iter().copied().chain(end).collect();
        // The last token is chosen, but never read by the decoder. Scores do not count the prefix.
        let total = before
            + hypothesis.score * ((path.len() - prefix.len()) as f32).powf(settings.length_penalty);
        let last = path.iter().fold(0, |node, &token| {
            tree.child(node, token).unwrap_or_else(|| tree.push(Some(node), token, total))
        });
        tree.nodes[last].finished = Some((rank, hypothesis.score));
    }
    Ok((hypotheses, tree))
}

/// A decoder that records the beams of one sentence.
struct Watching<'d> {
    inner: &'d mut dyn Decoder,
    tree: BeamTree,
    /// The node of each beam.
    running: Vec<usize>,
    /// The log-probabilities of the next tokens of each beam.
    scores: Vec<Vec<f32>>,
}

impl Decoder for Watching<'_> {
    fn engine(&self) -> &str {
        self.inner.engine()
    }

    fn start(&mut self, sources: Sources<'_>, beams: usize) -> Result<()> {
        self.inner.start(sources, beams)
    }

    fn advance(
        &mut self,
        parents: Option<&Array2<usize>>,
        tokens: &Array2<i64>,
    ) -> Result<Logits<'_>> {
        let row = tokens.row(0);
        self.running = match self.running.is_empty() {
            true => vec![self.tree.push(None, row[0], 0.0); row.len()],
            false => {
                let mut running = Vec::with_capacity(row.len());
                for (beam, &token) in row.iter().enumerate() {
                    let before = parents.map_or(beam, |parents| parents[[0, beam]]);
                    let parent = self.running[before];
                    let of_token = usize::try_from(token)
                        .ok()
                        .and_then(|id| self.scores[before].get(id))
                        .copied()
                        .unwrap_or(f32::NAN);
                    let sum = self.tree.nodes[parent].log_probability + of_token;
                    running.push(
                        self.tree
                            .child(parent, token)
                            .unwrap_or_else(|| self.tree.push(Some(parent), token, sum)),
                    );
                }
                running
            }
        };
        let mut logits = self.inner.advance(parents, tokens)?;
        self.scores = logits
            .rows(0)
            .map(|row| {
                let mut scores: Vec<f32> =
                    row.scores.iter().map(|score| score * row.scale).collect();
                log_softmax(&mut scores);
                scores
            })
            .collect();
        Ok(logits)
    }

    fn cross_attention(&mut self, layer_index: usize) -> Result<Array4<f32>> {
        self.inner.cross_attention(layer_index)
    }

    fn retain(&mut self, sentences: &[usize]) -> Result<()> {
        self.inner.retain(sentences)
    }
}
