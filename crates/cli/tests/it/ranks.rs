//! `mpirun cognate train`: several processes make one model.

use crate::train::{folder, path};
use crate::{cognate, ended};

#[cfg(not(feature = "mpi"))]
#[test]
fn several_processes_need_mpi() {
    let folder = folder();
    let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
    let told =
        ended(cognate(&["train", &settings, "--out", &out]).env("OMPI_COMM_WORLD_SIZE", "2"))
            .failed(1);
    assert!(
        told.starts_with("cognate: error: 2 processes were started, but this `cognate` was built without MPI; build it with"),
        "{told}"
    );
    assert!(!folder.path().join("out").exists());
}

#[cfg(feature = "mpi")]
mod with_mpi {
    use super::{cognate, ended, folder, path};
    use cognate_runtime::{Device, Engine};
    use serde_json::Value;
    use std::fs;
    use std::path::Path;
    use std::process::{Command, Stdio};
    use std::thread::sleep;
    use std::time::{Duration, Instant};

    /// The command as `n` processes.
    fn together(n: usize, args: &[&str]) -> Command {
        let one = cognate(args);
        let mut all = Command::new("mpirun");
        all.args([
            "--allow-run-as-root",
            "--oversubscribe",
            "--bind-to",
            "none",
            "-n",
            &n.to_string(),
        ]);
        all.arg(one.get_program()).args(args).current_dir(one.get_current_dir().unwrap());
        all.env_remove("RUST_BACKTRACE").env("COLUMNS", "100").stdin(Stdio::null());
        all
    }

    fn has_ort() -> bool {
        Engine::Ort
            .open(Device::Cpu)
            .inspect_err(|error| cognate_testing::skip(&error.to_string()))
            .is_ok()
    }

    /// Losses a label in the lines of the log.
    fn losses(out: &str) -> Vec<f64> {
        let text = fs::read_to_string(Path::new(out).join("log.jsonl")).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter_map(|line| line["loss"].as_f64().or(line["valid_loss"].as_f64())).collect()
    }

    #[test]
    fn two_processes_come_to_what_one_does() {
        if !has_ort() {
            return;
        }
        let folder = folder();
        let settings = path(folder.path(), "small.toml");
        let [alone, shared] = ["alone", "shared"].map(|name| path(folder.path(), name));
        let args = |out| {
            [
                "train",
                &settings,
                "--engine",
                "ort",
                "--max-updates",
                "20",
                "--validate-every",
                "10",
                "--log-every",
                "5",
                "--out",
                out,
            ]
        };
        ended(&mut cognate(&args(&alone))).ok();
        let two = ended(&mut together(2, &args(&shared)));
        let told = two.err.clone();
        assert_eq!(two.ok(), "", "{told}");
        assert_eq!(told.matches(", in 2 processes").count(), 1, "{told}");
        let (expected, found) = (losses(&alone), losses(&shared));
        assert_eq!((expected.len(), found.len()), (6, 6));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-5 * expected, "{found} and {expected}");
        }
        // One process goes on where two were.
        ended(&mut cognate(&[
            "train",
            "--resume",
            "--engine",
            "ort",
            "--max-updates",
            "21",
            "--out",
            &shared,
        ]))
        .ok();
    }

    #[test]
    fn an_error_ends_all() {
        if !has_ort() {
            return;
        }
        let folder = folder();
        let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "a.src"));
        let told = ended(&mut together(2, &["train", &settings, "--engine", "ort", "--out", &out]))
            .failed(1);
        assert_eq!(told.matches("a.src: expected a folder to write into").count(), 1, "{told}");
    }

    #[test]
    fn a_killed_process_ends_the_job_and_leaves_its_last_state() {
        if !has_ort() {
            return;
        }
        let folder = folder();
        let (settings, out) = (path(folder.path(), "small.toml"), path(folder.path(), "out"));
        let args = [
            "train",
            &settings,
            "--engine",
            "ort",
            "--max-updates",
            "1000000",
            "--validate-every",
            "20",
            "--out",
            &out,
        ];
        let job = together(2, &args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let begun = Instant::now();
        while !Path::new(&out).join("checkpoint-20").is_dir() {
            assert!(begun.elapsed() < Duration::from_secs(300), "no checkpoint appears");
            sleep(Duration::from_millis(20));
        }
        let children =
            fs::read_to_string(format!("/proc/{0}/task/{0}/children", job.id())).unwrap();
        let last = children.split_whitespace().last().unwrap();
        assert!(Command::new("kill").args(["-KILL", last]).status().unwrap().success());
        let ended_job = job.wait_with_output().unwrap();
        let told = String::from_utf8(ended_job.stderr).unwrap();
        assert!(
            !ended_job.status.success() && told.contains("exited on signal 9"),
            "{:?}: {told}",
            ended_job.status
        );
        let further = ended(&mut cognate(&[
            "train",
            "--resume",
            "--engine",
            "ort",
            "--max-updates",
            "1",
            "--out",
            &out,
        ]));
        assert!(further.err.contains("resuming after update "), "{}", further.err);
        further.ok();
    }
}
