use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use cognate_testing::shared_multi30k;
use cognate_train::{
    BatchSettings, Batches, Cleaning, Corpus, ErrorKind, Files, Framing, IGNORED, LeftOut, Place,
    Position, TrainingBatch, shard,
};
use insta::assert_snapshot;

use crate::{Folder, bundled, open, sentences};

fn settings(max_tokens: usize) -> BatchSettings {
    BatchSettings {
        max_tokens,
        max_source_tokens: max_tokens.min(64),
        max_target_tokens: max_tokens.min(64),
        ..Default::default()
    }
}

fn from(corpus: &Arc<Corpus>, settings: &BatchSettings, position: Position) -> Batches {
    Batches::new(Arc::clone(corpus), bundled(), settings.clone(), position).unwrap()
}

/// The batches of whole epochs.
fn epochs(corpus: &Arc<Corpus>, settings: &BatchSettings, n: u64) -> Vec<TrainingBatch> {
    from(corpus, settings, Position::default())
        .map(Result::unwrap)
        .take_while(|batch| batch.position().epoch < n)
        .collect()
}

/// All that a batch is: where it stands, and what a model reads.
fn shown(batch: &TrainingBatch) -> impl PartialEq + std::fmt::Debug + use<> {
    (batch.position(), batch.next_position(), batch.places().collect::<Vec<_>>(), batch.arrays())
}

/// 5,000 pairs of many lengths.
fn corpus(folder: &Folder) -> Arc<Corpus> {
    let (source, target) = sentences(5_000, 30);
    open(folder.parallel(source, target))
}

#[test]
fn an_epoch_has_each_sentence_once_within_the_budget() {
    let folder = Folder::new();
    let corpus = corpus(&folder);
    for (max_tokens, max_sentences) in [(30, None), (300, Some(7)), (1_000, None), (100_000, None)]
    {
        let settings = BatchSettings { max_sentences, ..settings(max_tokens) };
        let mut seen: HashMap<(u64, Place), u32> = HashMap::new();
        let batches = epochs(&corpus, &settings, 2);
        let left_out: u64 = batches.iter().map(|batch| batch.left_out().long).sum();
        for batch in &batches {
            let arrays = batch.arrays();
            let (rows, source) = arrays.input_ids.dim();
            assert!(
                rows * source <= max_tokens
                    && rows * arrays.labels.dim().1 <= max_tokens
                    && rows > 0
            );
            assert!(max_sentences.is_none_or(|most| rows <= most));
            assert_eq!(batch.padded_tokens(), rows * (source + arrays.labels.dim().1));
            batch
                .places()
                .for_each(|place| *seen.entry((batch.position().epoch, place)).or_default() += 1);
        }
        assert!(seen.values().all(|count| *count == 1), "{max_tokens}");
        assert_eq!(seen.len() as u64 + left_out, 2 * 5_000, "{max_tokens}");
        assert_eq!(left_out > 0, max_tokens == 30);
    }
}

/// Ids as transformers' tokenizer gives them (`testdata/multi30k-en-de`), put together by hand.
#[test]
fn the_decoder_reads_its_target_shifted() {
    let folder = Folder::new();
    let corpus = open(folder.parallel("A man\nA man in an orange hat.\n", "a b\na\n"));
    let framing =
        Framing { start: 2, prefix: vec![7], suffix: vec![0], pad: 2, label_padding: IGNORED };
    let batch = epochs(&corpus, &BatchSettings { framing, ..settings(100) }, 1).remove(0);
    assert_eq!(
        (batch.n_sentences(), batch.source_tokens(), batch.target_tokens(), batch.padded_tokens()),
        (2, 11, 7, 24)
    );
    let arrays = batch.arrays();
    let rows = |array: &ndarray::Array2<i64>| {
        array.rows().into_iter().map(|row| row.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(rows(&arrays.input_ids), [[8, 20, 5, 30, 168, 93, 3, 0], [8, 20, 0, 2, 2, 2, 2, 2]]);
    assert_eq!(rows(&arrays.attention_mask), [[1, 1, 1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0, 0, 0]]);
    assert_eq!(rows(&arrays.labels), [[7, 4, 0, IGNORED], [7, 4, 511, 0]]);
    assert_eq!(rows(&arrays.decoder_input_ids), [[2, 7, 4, 2], [2, 7, 4, 511]]);
    assert_eq!(rows(&arrays.label_mask), [[1, 1, 1, 0], [1, 1, 1, 1]]);
}

#[test]
fn seed_and_epoch_decide_the_order() {
    let folder = Folder::new();
    let corpus = corpus(&folder);
    let order = |seed, n| {
        let batches = epochs(&corpus, &BatchSettings { seed, ..settings(500) }, n);
        batches.iter().map(|batch| batch.places().collect::<Vec<_>>()).collect::<Vec<_>>()
    };
    let (first, second) = (order(1, 1), order(1, 2));
    assert_eq!(first, second[..first.len()]);
    assert_ne!(first, second[first.len()..2 * first.len()]);
    assert_ne!(first, order(2, 1));
    // Batches change their sentences from epoch to epoch, not their order only.
    let together = |batches: &[Vec<Place>]| {
        batches
            .iter()
            .map(|batch| batch.iter().copied().min())
            .collect::<std::collections::BTreeSet<_>>()
    };
    assert_ne!(together(&first), together(&second[first.len()..]));
}

#[test]
fn a_run_resumes_at_any_batch() {
    let folder = Folder::new();
    let corpus = corpus(&folder);
    let settings = settings(700);
    let whole = epochs(&corpus, &settings, 3);
    for stop in [
        0,
        1,
        17,
        whole.len() / 3 - 1,
        whole.len() / 3,
        whole.len() / 3 + 1,
        whole.len() / 2,
        whole.len() - 1,
    ] {
        // Through text, as a checkpoint keeps it.
        let position = serde_json::to_string(&whole[stop].next_position()).unwrap();
        let resumed = from(&corpus, &settings, serde_json::from_str(&position).unwrap());
        for (expected, found) in whole[stop + 1..].iter().zip(resumed) {
            assert_eq!(shown(expected), shown(&found.unwrap()), "after {stop}");
        }
    }
}

/// Words are cut anew in each epoch, the text stays, and a run resumes with the same pieces.
#[test]
fn pieces_are_drawn_in_each_epoch() {
    let folder = Folder::new();
    let (corpus, tokenizer, plain) = (corpus(&folder), bundled(), settings(2_000));
    let settings = BatchSettings { subword_sampling: Some(0.2), ..plain.clone() };
    let rows = |batches: &[TrainingBatch], epoch| -> BTreeMap<Place, [Vec<i64>; 2]> {
        let of_epoch = batches.iter().filter(|batch| batch.position().epoch == epoch);
        let of_batch = |batch: &TrainingBatch| {
            let arrays = batch.arrays();
            let ids = |array: &ndarray::Array2<i64>, row, fill| {
                array.row(row).iter().copied().filter(|id| *id != fill).collect::<Vec<_>>()
            };
            let pair = |(row, place)| {
                (place, [ids(&arrays.input_ids, row, 2), ids(&arrays.labels, row, IGNORED)])
            };
            batch.places().enumerate().map(pair).collect::<Vec<_>>()
        };
        of_epoch.flat_map(of_batch).collect()
    };
    let whole = epochs(&corpus, &settings, 2);
    let [first, second, likeliest] =
        [rows(&whole, 0), rows(&whole, 1), rows(&epochs(&corpus, &plain, 1), 0)];
    let mut n_changed = 0;
    for (place, pair) in &likeliest {
        for side in [0, 1] {
            let texts = [&pair[side], &first[place][side], &second[place][side]]
                .map(|ids| tokenizer.decode(ids).unwrap());
            assert!(texts.iter().all(|text| *text == texts[0]), "{texts:?}");
            n_changed += usize::from(first[place][side] != second[place][side]);
        }
    }
    assert!(n_changed > likeliest.len(), "{n_changed} of {} texts", 2 * likeliest.len());
    let stop = whole.len() * 3 / 4;
    let resumed = from(&corpus, &settings, whole[stop].next_position());
    for (expected, found) in whole[stop + 1..].iter().zip(resumed) {
        assert_eq!(shown(expected), shown(&found.unwrap()));
    }
}

/// A corpus of several windows: the same batches by threads, with whatever depth, and after
/// resuming.
#[test]
fn windows_are_prefetched_in_order() {
    let folder = Folder::new();
    let (source, target) = sentences(70_000, 4);
    let corpus = open(folder.parallel(source, target));
    let settings = settings(4_000);
    let whole = epochs(&corpus, &settings, 1);
    assert_eq!(whole.iter().map(TrainingBatch::n_sentences).sum::<usize>(), 70_000);
    let next_window = whole.iter().position(|batch| batch.position().window == 1).unwrap();
    assert_eq!(whole.last().unwrap().next_position(), Position { epoch: 1, window: 0, batch: 0 });
    let begin = whole[next_window - 3].position();
    for depth in [0, 1, 50] {
        let mut found = from(&corpus, &settings, begin).prefetched(depth);
        for expected in &whole[next_window - 3..next_window + 3] {
            assert_eq!(shown(expected), shown(&found.next().unwrap().unwrap()), "depth {depth}");
        }
    }
    // Windows mix blocks from everywhere.
    let lines: Vec<u64> = whole[..next_window]
        .iter()
        .flat_map(TrainingBatch::places)
        .map(|place| place.line)
        .collect();
    assert!(lines.iter().any(|line| *line < 5_000) && lines.iter().any(|line| *line > 65_000));
}

#[test]
fn ranks_share_each_batch() {
    for n in 0..20 {
        for n_ranks in 1..9 {
            let mut rows: Vec<usize> =
                (0..n_ranks).flat_map(|rank| shard(n, rank, n_ranks)).collect();
            let sizes: Vec<usize> =
                (0..n_ranks).map(|rank| shard(n, rank, n_ranks).count()).collect();
            assert!(
                sizes.iter().max().unwrap() - sizes.iter().min().unwrap() <= 1,
                "{n} of {n_ranks}"
            );
            rows.sort_unstable();
            assert!(rows.into_iter().eq(0..n), "{n} of {n_ranks}");
        }
    }
    let folder = Folder::new();
    let corpus = corpus(&folder);
    for batch in epochs(&corpus, &settings(400), 1) {
        let shares: Vec<TrainingBatch> = (0..3).map(|rank| batch.shard(rank, 3)).collect();
        assert_eq!(
            shares.iter().map(TrainingBatch::target_tokens).sum::<usize>(),
            batch.target_tokens()
        );
        assert_eq!(
            shares.iter().map(|share| share.arrays().label_mask.sum()).sum::<i64>(),
            batch.target_tokens() as i64
        );
        let mut places: Vec<Place> =
            shares.iter().flat_map(|share| share.places().collect::<Vec<_>>()).collect();
        let mut expected: Vec<Place> = batch.places().collect();
        places.sort_unstable();
        expected.sort_unstable();
        assert_eq!(places, expected);
        assert!(shares.iter().all(|share| share.next_position() == batch.next_position()));
    }
    let one = epochs(&open(folder.parallel("a\n", "b\n")), &settings(400), 1).remove(0);
    assert_eq!(one.shard(1, 2).arrays().labels.dim(), (0, 0));
}

#[test]
fn pairs_that_would_harm_are_left_out_and_counted() {
    let folder = Folder::new();
    let long = "man ".repeat(70);
    let source = format!(
        "a\n{long}\na man\na man <pad>\na </s> man\na\nman man man man man man man man man\n"
    );
    let target = "a\na\na</s>b\na\na b\n<pad> a\na\n";
    let corpus = open(folder.parallel(source, target));
    let settings = BatchSettings { max_ratio: Some(4.0), ..settings(100) };
    let left_out = LeftOut { long: 1, ratio: 1, special: 3 };
    let epoch = epochs(&corpus, &settings, 1);
    assert_eq!((epoch.len(), epoch[0].n_sentences(), epoch[0].left_out()), (1, 2, left_out));
}

#[test]
fn what_makes_no_batches_is_refused() {
    let folder = Folder::new();
    let corpus = open(folder.parallel("a man\nthe dog\n", "ein Mann\nder Hund\n"));
    let error = |settings: BatchSettings| match Batches::new(
        Arc::clone(&corpus),
        bundled(),
        settings,
        Position::default(),
    ) {
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Settings);
            error.to_string()
        }
        Ok(mut batches) => {
            let error = batches.next().unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corpus);
            assert!(batches.next().is_none());
            error.to_string()
        }
    };
    let defaults = BatchSettings::default;
    assert_snapshot!(error(BatchSettings { max_source_tokens: 1, ..defaults() }), @"no pair of sentences fits into a batch: 2 with too many tokens, 0 with one side too long for the other, 0 that contain special tokens; raise max_tokens, max_source_tokens, max_target_tokens or max_ratio");
    assert_snapshot!(error(BatchSettings { max_tokens: 255, ..defaults() }), @"max_source_tokens is 256, expected 1 to max_tokens, which is 255");
    assert_snapshot!(error(BatchSettings { max_target_tokens: 0, ..defaults() }), @"max_target_tokens is 0, expected 1 to max_tokens, which is 2048");
    assert_snapshot!(error(BatchSettings { max_sentences: Some(0), ..defaults() }), @"max_sentences is 0, expected at least 1");
    assert_snapshot!(error(BatchSettings { max_ratio: Some(f64::NAN), ..defaults() }), @"max_ratio is NaN, expected at least 1");
}

#[test]
fn threads_end_with_the_batches() {
    let folder = Folder::new();
    let (source, target) = sentences(70_000, 4);
    let corpus = open(folder.parallel(source, target));
    drop(from(&corpus, &settings(4_000), Position::default()).prefetched(2));
    let mut batches = from(&corpus, &settings(4_000), Position::default()).prefetched(2);
    batches.next().unwrap().unwrap();
    drop(batches);
    // Every thread had one of the others.
    assert_eq!(Arc::strong_count(&corpus), 1);
}

/// The training text in batches as those that the bundled checkpoint was trained with: little of
/// them is padding.
#[test]
fn multi30k_batches_are_dense() {
    let Some(folder) = shared_multi30k() else { return };
    let files =
        Files::Parallel { source: folder.join("train.en"), target: folder.join("train.de") };
    let corpus = Arc::new(Corpus::open(&[files], &Cleaning::default()).unwrap());
    assert_eq!((corpus.n_lines(), corpus.n_pairs()), (29_000, 29_000));
    let batches = epochs(&corpus, &BatchSettings::default(), 1);
    let sum = |count: fn(&TrainingBatch) -> usize| batches.iter().map(count).sum::<usize>();
    assert_eq!(sum(TrainingBatch::n_sentences), 29_000);
    let dense = sum(|batch| batch.source_tokens() + batch.target_tokens()) as f64
        / sum(TrainingBatch::padded_tokens) as f64;
    assert!(dense > 0.9, "{dense}");
}
