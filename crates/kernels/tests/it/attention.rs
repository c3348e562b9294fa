//! Attention to caches and memories, compared with f64.

use crate::common::numbers;
use cognate_kernels::*;

fn context(context: &mut [f32]) -> Results<'_> {
    Results { context, weights: None }
}

/// `softmax(scale · q Kᵀ + mask) V` in f64, with the scores bounded before the mask if there is a
/// bound: keys and values of one head, a row for each place. And the sum of magnitudes in the
/// largest score, by which f32 rounds.
fn expected(
    query: &[f32],
    keys: &[&[f32]],
    values: &[&[f32]],
    attention: Attention,
    mask: impl Fn(usize) -> f32,
) -> (Vec<f64>, f64) {
    let (scale, cap) = (f64::from(attention.scale), attention.cap.map(f64::from));
    let capped = |score: f64| cap.map_or(score, |cap| cap * (score / cap).tanh());
    let products = |key: &[f32]| {
        query.iter().zip(key).map(|(&q, &k)| f64::from(q) * f64::from(k)).collect::<Vec<_>>()
    };
    let (mut scores, mut size) = (Vec::new(), 1.0f64);
    for (place, key) in keys.iter().enumerate() {
        let products = products(key);
        scores.push(capped(products.iter().sum::<f64>() * scale) + f64::from(mask(place)));
        size = size.max(products.iter().map(|product| product.abs()).sum::<f64>() * scale);
    }
    let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp()).collect();
    let sum: f64 = weights.iter().sum();
    let column = |index: usize| {
        weights
            .iter()
            .zip(values)
            .map(|(weight, value)| weight / sum * f64::from(value[index]))
            .sum()
    };
    ((0..query.len()).map(column).collect(), size)
}

#[track_caller]
fn assert_near(found: &[f32], (expected, size): &(Vec<f64>, f64), what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let worst = found
        .iter()
        .zip(expected)
        .map(|(&found, expected)| (f64::from(found) - expected).abs())
        .fold(0.0, f64::max);
    assert!(worst < 5e-7 * size, "{what}: {worst:e} of {size}");
}

/// Of one query and of many, whose largest score is far above the others.
#[test]
fn no_weight_makes_subnormal_products() {
    let (d_k, places) = (16, 70);
    for n in [1, 40] {
        let attention = Attention::new(1, d_k, 100.0);
        let rows = numbers(places.max(n) * 3 * d_k, 1);
        let strides = Strides { head: d_k, place: 3 * d_k };
        let memory = Memory {
            keys: &rows[d_k..],
            values: &rows[2 * d_k..],
            strides,
            places,
            mask: None,
            packed: n > 1,
        };
        let (mut out, mut weights) = (vec![f32::NAN; n * d_k], vec![f32::NAN; n * places]);
        attention.read(
            (&rows, 3 * d_k),
            &memory,
            Results { context: &mut out, weights: Some(&mut weights) },
            &Serial,
        );
        let least = weights.iter().copied().fold(f32::MAX, f32::min);
        assert!(least > 1e-27 && least < 1e-26, "{n} queries: {least:e}");
    }
}

/// One query and many, few places and many, widths that fill vectors and such that do not.
#[test]
fn memories_are_read_as_in_f64() {
    for (d_k, places, n, packed) in [
        (64, 24, 1, false),
        (64, 24, 24, true),
        (6, 11, 11, true),
        (5, 1, 9, false),
        (17, 70, 3, true),
        (80, 33, 8, true),
        (33, 130, 61, true),
        // By tiles, if the processor has them.
        (64, 150, 141, true),
        (33, 130, 128, true),
    ] {
        let (heads, scale) = (3, 0.3);
        let attention = Attention::new(heads, d_k, scale);
        let width = attention.width();
        // As they come from a layer that gives all three, side by side.
        let rows = numbers(places.max(n) * 3 * width, 1);
        let mask = numbers(heads * n * places, 2);
        let strides = Strides { head: d_k, place: 3 * width };
        let mask_rows = Mask { numbers: &mask, head: n * places, query: places };
        let memory = Memory {
            keys: &rows[width..],
            values: &rows[2 * width..],
            strides,
            places,
            mask: Some(mask_rows),
            packed,
        };
        let (mut out, mut weights) =
            (vec![f32::NAN; n * width], vec![f32::NAN; n * heads * places]);
        attention.read(
            (&rows, 3 * width),
            &memory,
            Results { context: &mut out, weights: Some(&mut weights) },
            &Serial,
        );
        let mut alone = vec![f32::NAN; n * width];
        attention.read((&rows, 3 * width), &memory, context(&mut alone), &Serial);
        assert_eq!(alone, out, "with and without weights");
        for index in 0..n {
            for head in 0..heads {
                let part = |third: usize, row: usize| {
                    &rows[row * 3 * width + third * width + head * d_k..][..d_k]
                };
                let [keys, values] = [1, 2]
                    .map(|third| (0..places).map(|place| part(third, place)).collect::<Vec<_>>());
                let mask = |place: usize| mask[(head * n + index) * places + place];
                let expected = expected(part(0, index), &keys, &values, attention, mask);
                let found = &out[(index * heads + head) * d_k..][..d_k];
                assert_near(
                    found,
                    &expected,
                    &format!("{d_k} numbers, {places} places, query {index} of {n}, head {head}"),
                );
                let weights = &weights[(index * heads + head) * places..][..places];
                let by_weights = |column: usize| {
                    weights.iter().zip(&values).map(|(weight, value)| weight * value[column]).sum()
                };
                let by_weights: Vec<f32> = (0..d_k).map(by_weights).collect();
                assert_near(&by_weights, &expected, "the values by their weights");
            }
        }
    }
}

/// Hypotheses whose histories lie in each other's rows; heads that share keys, places that are not
/// read, and bounded scores.
#[test]
fn a_step_sees_what_its_beams_wrote() {
    for (d_k, [first, past, longest], bias, key_heads, cap) in [
        (64, [0, 17, 17], false, 4, None),
        (6, [0, 0, 0], true, 4, None),
        (20, [0, 9, 9], true, 2, None),
        (20, [0, 9, 30], true, 4, Some(0.7)),
        (6, [0, 0, 3], true, 1, None),
        (20, [4, 9, 9], false, 1, None),
        (20, [9, 9, 12], true, 2, None),
        (64, [3, 17, 18], true, 2, Some(1.5)),
    ] {
        let (heads, beams, capacity, scale) = (4, 3, 20, 0.5);
        let attention = Attention { key_heads, cap, ..Attention::new(heads, d_k, scale) };
        let (width, size) = (attention.width(), beams * attention.key_width() * capacity);
        let (mut keys, mut values) = (numbers(size, 3), numbers(size, 4));
        // As they come from a layer that gives all three, side by side.
        let (stride, rows) = (3 * width, numbers(beams * 3 * width, 5));
        let [query, key, value] = [0, 1, 2].map(|third| &rows[third * width..]);
        // Behind the past there is no holder, and what is before the first place is not read.
        let holder = |index: usize| {
            if (first..past).contains(&(index % longest)) { (index * 5 % beams) as i64 } else { -1 }
        };
        let holders: Vec<i64> = (0..beams * longest).map(holder).collect();
        let biases = numbers(heads * (longest + 1), 8);
        let step = Step {
            query,
            key,
            value,
            strides: [stride; 3],
            past,
            first,
            longest,
            holders: &holders,
            bias: bias.then_some(&*biases),
        };
        let mut out = vec![f32::NAN; beams * width];
        attention.step(&step, Caches { keys: &mut keys, values: &mut values, capacity }, &mut out);
        for beam in 0..beams {
            for head in 0..heads {
                let key_head = head / (heads / key_heads);
                let (at, to) = (beam * stride + head * d_k, beam * width + head * d_k);
                let (new, own) = (
                    beam * stride + key_head * d_k,
                    ((beam * key_heads + key_head) * capacity + past) * d_k,
                );
                assert_eq!(
                    [&keys[own..][..d_k], &values[own..][..d_k]],
                    [&key[new..][..d_k], &value[new..][..d_k]]
                );
                let holder = |place: usize| {
                    if place == past { beam } else { holders[beam * longest + place] as usize }
                };
                let start = |place: usize| {
                    ((holder(place) * key_heads + key_head) * capacity + place) * d_k
                };
                let [seen_keys, seen_values] = [&keys, &values].map(|cache| {
                    (first..=past).map(|place| &cache[start(place)..][..d_k]).collect::<Vec<_>>()
                });
                let bias = |place: usize| {
                    if bias {
                        biases[head * (longest + 1) + longest - past + first + place]
                    } else {
                        0.0
                    }
                };
                let expected =
                    expected(&query[at..][..d_k], &seen_keys, &seen_values, attention, bias);
                assert_near(
                    &out[to..][..d_k],
                    &expected,
                    &format!("{d_k} numbers, {past} places, beam {beam}, head {head}"),
                );
            }
        }
    }
}

/// The same sentence, with and without places that are hidden: the same bits.
#[test]
fn padding_changes_nothing() {
    let (attention, places, filled) = (Attention::new(1, 20, 0.7), 9, 75);
    let (mut keys, values, query) =
        (numbers(filled * 20, 1), numbers(filled * 20, 2), numbers(20, 3));
    keys[places * 20..].fill(3.0);
    let mask: Vec<f32> = (0..filled).map(|place| if place < places { 0.0 } else { -1e9 }).collect();
    let read = |places: usize, packed| {
        let (strides, mask) =
            (Strides { head: 0, place: 20 }, Mask { numbers: &mask, head: 0, query: 0 });
        let mut out = vec![0.0; 20];
        attention.read(
            (&query, 20),
            &Memory { keys: &keys, values: &values, strides, places, mask: Some(mask), packed },
            context(&mut out),
            &Serial,
        );
        out
    };
    for packed in [false, true] {
        assert_eq!(read(filled, packed), read(places, packed));
    }
}

#[test]
fn padding_weighs_nothing() {
    let attention = Attention::new(1, 16, 1.0);
    let (keys, mut values, query) = (numbers(64, 1), numbers(64, 2), numbers(16, 3));
    let mask = [0.0, 0.0, -1e9, f32::NEG_INFINITY];
    let read = |values: &[f32]| {
        let (strides, mask) =
            (Strides { head: 64, place: 16 }, Mask { numbers: &mask, head: 0, query: 0 });
        let mut out = vec![0.0; 16];
        attention.read(
            (&query, 16),
            &Memory { keys: &keys, values, strides, places: 4, mask: Some(mask), packed: false },
            context(&mut out),
            &Serial,
        );
        out
    };
    let before = read(&values);
    values[32..].fill(1e6);
    assert_eq!(read(&values), before);
}

/// A query alone, and among others of its sentence: the same bits.
#[test]
fn a_query_is_the_same_in_every_block() {
    let (attention, n, places) = (Attention::new(2, 20, 0.4), 61, 70);
    let (queries, keys, values) =
        (numbers(n * 40, 1), numbers(places * 40, 2), numbers(places * 40, 3));
    let memory = Memory {
        keys: &keys,
        values: &values,
        strides: Strides { head: 20, place: 40 },
        places,
        mask: None,
        packed: true,
    };
    let mut all = vec![f32::NAN; n * 40];
    attention.read((&queries, 40), &memory, context(&mut all), &Serial);
    for index in 0..n {
        let mut one = vec![f32::NAN; 40];
        attention.read((&queries[index * 40..], 40), &memory, context(&mut one), &Serial);
        assert_eq!(one, all[index * 40..][..40], "query {index}");
    }
}
