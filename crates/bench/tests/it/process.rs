//! Unit tests of `process`.

use cognate_bench::process::*;
use std::process::Command;
use std::time::Duration;
use xtask::memory::in_status;

#[test]
fn status_is_parsed() {
    let status = "Name:\tcognate\nVmPeak:\t  412 kB\nVmHWM:\t    264 kB\nVmRSS:\t 100 kB\nRssAnon:\t      52 kB\nRssFile:\t 40 kB\n";
    assert_eq!(
        ["RssAnon", "VmHWM", "Vm"].map(|field| in_status(status, field)),
        [Some(52 * 1024), Some(264 * 1024), None]
    );
    assert_eq!(in_status("Name:\tcognate\nState:\tZ (zombie)\n", "VmHWM"), None);
}

#[cfg(target_os = "linux")]
#[test]
fn a_program_is_measured() {
    let measured = measure(Command::new("sleep").arg("0.05")).unwrap();
    assert!(measured.time >= Duration::from_millis(50));
    assert!(measured.memory.anonymous > 0 && measured.memory.anonymous < measured.memory.resident);
    let error = measure(Command::new("sleep").arg("forever")).unwrap_err().to_string();
    assert!(error.starts_with("sleep forever: exit status: 1"), "{error}");
}
