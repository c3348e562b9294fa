//! Tests of `test`.

use anyhow::{Result, bail};
use xtask::test::*;
#[test]
fn a_failing_step_does_not_stop_the_next_and_is_named() {
    let mut steps = Steps::default();
    assert_eq!(steps.step("first", || -> Result<u8> { bail!("no pip") }), None);
    assert_eq!(steps.step("second", || Ok(2)), Some(2));
    assert_eq!(steps.finish().unwrap_err().to_string(), "failed: first");
}
