//! Unit tests of `decode::shape`.

use cognate_bench::decode::shape::*;

#[test]
fn a_step_of_marian_base_reads_154_megabytes() {
    assert_eq!(SHAPES[0].decoder_weights() * 4, 153_616_384);
}

#[test]
fn sources_are_tokens() {
    let sources = SHAPES[1].sources(32);
    assert!(sources.iter().all(|source| source.len() == LENGTHS[0] && source.ends_with(&[1])));
    assert!(
        sources.iter().flat_map(|source| &source[..23]).all(|token| (16..31_944).contains(token))
    );
    assert_eq!(SHAPES[1].sources(8), sources[..8]);
}
