//! Batches of sentences of like length.

/// Divides sentences into batches of at most `budget` tokens, padding included, or of one sentence where that is longer.
/// Returns indices into `lengths`, the longest sentences first.
pub(crate) fn batches(lengths: &[usize], budget: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<_> = (0..lengths.len()).collect();
    // Stable, so that the batches depend on the text alone.
    order.sort_by_key(|&index| std::cmp::Reverse(lengths[index]));
    let mut batches: Vec<Vec<usize>> = Vec::new();
    for index in order {
        match batches.last_mut() {
            // The first sentence of a batch is its longest, to whose length the others are padded.
            Some(batch) if (batch.len() + 1) * lengths[batch[0]] <= budget => batch.push(index),
            _ => batches.push(vec![index]),
        }
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_keep_to_the_budget() {
        let cases = [
            (vec![], 10, vec![]),
            (vec![3, 5, 4], 15, vec![vec![1, 2, 0]]),
            (vec![3, 5, 4], 10, vec![vec![1, 2], vec![0]]),
            (vec![2, 2, 2, 2], 4, vec![vec![0, 1], vec![2, 3]]),
            (vec![9, 1, 9], 0, vec![vec![0], vec![2], vec![1]]),
        ];
        for (lengths, budget, expected) in cases {
            assert_eq!(batches(&lengths, budget), expected, "{lengths:?} {budget}");
        }
    }
}
