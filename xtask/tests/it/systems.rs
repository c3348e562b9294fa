//! Tests of `systems`.

use xtask::systems::*;
#[test]
fn installed_targets_are_told_apart() {
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    assert!(!cfg!(target_os = "linux") || !cfg!(target_env = "gnu") || is_installed(&host));
    assert!(!is_installed("klingon-unknown-none"));
}
