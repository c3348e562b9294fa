//! Unit tests of `decode::ways`.

use Weights::{Bf16, F32, Int8};
use cognate_bench::decode::ways::*;

#[test]
fn floors_have_two_digits_at_most() {
    let floors = WAYS.iter().filter_map(|way| way.floors).flatten().flatten();
    floors.for_each(|floor| assert_eq!(format!("{floor:.2}").parse(), Ok(floor)));
}

#[test]
fn rows_are_compared_with_rows() {
    for way in WAYS {
        assert_eq!(WAYS.iter().filter(|other| other.name == way.name).count(), 1, "{}", way.name);
        let Some(peer) = way.peer else { continue };
        let peer = WAYS.iter().find(|other| other.name == peer);
        let wanted = if [F32, Bf16].contains(&way.weights) { F32 } else { Int8 };
        assert!(peer.is_some_and(|peer| peer.weights == wanted), "{}", way.name);
    }
}
