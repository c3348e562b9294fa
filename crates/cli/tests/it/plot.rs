//! Curves of training runs.

use crate::run;
use std::fs;
use std::path::{Path, PathBuf};

/// A log of 10 stretches and 2 validations, its losses from `highest` down.
fn log(folder: &Path, name: &str, highest: f64) -> PathBuf {
    let mut lines = String::new();
    for number in 1..=10 {
        let (update, loss) = (50 * number, highest / f64::from(number));
        lines += &format!(
            "{{\"update\":{update},\"epoch\":0,\"loss\":{loss},\"nll\":{loss},\"learning_rate\":1e-3,\"gradient_norm\":1.0,\
             \"tokens_per_second\":{}.0,\"engine_share\":0.99,\"seconds\":{number}.0}}\n",
            9_000 + 10 * number
        );
        if number % 5 == 0 {
            lines += &format!(
                "{{\"update\":{update},\"epoch\":0,\"valid_loss\":{loss},\"valid_nll\":{loss},\"perplexity\":{},\"bleu\":{number}.5,\
                 \"best\":true,\"seconds\":{number}.0}}\n",
                loss.exp()
            );
        }
    }
    let run = folder.join(name);
    fs::create_dir(&run).unwrap();
    fs::write(run.join("log.jsonl"), lines).unwrap();
    run
}

#[test]
fn runs_are_drawn_beside_one_another() {
    let folder = tempfile::tempdir().unwrap();
    let runs = [log(folder.path(), "post", 8.0), log(folder.path(), "pre<1>", 6.0)];
    let [post, pre] = [&runs[0], &runs[1]].map(|run| run.to_str().unwrap());
    let file = folder.path().join("curves.svg");
    run(&["plot", post, pre, "--out", file.to_str().unwrap()]).ok();
    let svg = fs::read_to_string(&file).unwrap();
    for words in
        [">post<", ">pre&lt;1&gt;<", "Learning rate", "BLEU of validation", ">updates<", ">500<"]
    {
        assert!(svg.contains(words), "{words}: {svg}");
    }
    // Two validations of each run are marked in two panels.
    let marks = |colour: &str| {
        svg.matches(&format!("width=\"5.0\" height=\"5.0\" fill=\"{colour}\"")).count()
    };
    assert_eq!([marks("#0072b2"), marks("#d55e00")], [4, 4]);
    let again =
        run(&["plot", &format!("{post}/log.jsonl"), pre, "--out", "-", "--names", "post,pre<1>"])
            .ok();
    assert_eq!(again, svg);
    // Where two have one name, their paths tell them apart.
    let twice = run(&["plot", post, &format!("{post}/log.jsonl"), "--out", "-"]).ok();
    assert!(
        twice.contains(&format!(">{post}<")) && twice.contains(&format!(">{post}/log.jsonl<")),
        "{twice}"
    );
    let table = run(&["plot", post, pre, "--out", "-", "--format", "csv"]).ok();
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 1 + 2 * 12);
    insta::assert_snapshot!([lines[0], lines[5], lines[6], lines[13]].join("\n"), @"
    run,update,epoch,seconds,loss,nll,learning_rate,gradient_norm,tokens_per_second,engine_share,valid_loss,valid_nll,perplexity,bleu,best
    post,250,0,5.0,1.6,1.6,0.001,1.0,9050.0,0.99,,,,,
    post,250,0,5.0,,,,,,,1.6,1.6,4.953032424395115,5.5,true
    pre<1>,50,0,1.0,6.0,6.0,0.001,1.0,9010.0,0.99,,,,,
    ");
    let picture = folder.path().join("curves.png");
    run(&["plot", post, "--out", picture.to_str().unwrap(), "--by", "minutes"]).ok();
    assert!(fs::read(&picture).unwrap().starts_with(b"\x89PNG\r\n"));
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let good = log(folder.path(), "good", 8.0);
    let (good, out) = (good.to_str().unwrap(), folder.path().join("out.svg"));
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let whole = fs::read_to_string(Path::new(good).join("log.jsonl")).unwrap();
    let strange = file("strange.jsonl", &format!("{whole}{{\"update\": 3}}\n"));
    let endless = file("endless.jsonl", &"[".repeat(1 << 17));
    let empty = file("empty.jsonl", "{\"update\":");
    for (logs, out, expected) in [
        (&[strange.as_str()][..], out.to_str().unwrap(), "line 13: not a line of a training log"),
        (&[&endless], out.to_str().unwrap(), "line 1: not a line of a training log"),
        (&[&empty], out.to_str().unwrap(), "is empty"),
        (&["no/such/run"], out.to_str().unwrap(), "no/such/run"),
        (&[good, "--names", "a,b"], out.to_str().unwrap(), "2 names for 1 logs"),
        (&[good, good, "--names", "a,a"], out.to_str().unwrap(), "a is given twice"),
        (&[good], "curves.gif", "ends in .svg, .png, .csv"),
        (&[good], "no/such/folder/curves.svg", "no folder"),
    ] {
        let args: Vec<&str> =
            ["plot", "--out", out].into_iter().chain(logs.iter().copied()).collect();
        let said = run(&args).failed(1);
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!out.exists());
}
