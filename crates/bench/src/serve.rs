//! `cargo xtask bench serve`: requests of one sentence that arrive at random, compared with FastAPI
//! and CTranslate2 in the same run.
//!
//! Arrivals are a Poisson process that does not wait for answers, and latencies include the time
//! until a connection is free. Servers and client share the machine, over its loopback interface.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use cognate_folder::ModelSource;
use cognate_pipeline::{DecodingOptions, LoadOptions, Translator, TranslatorOptions};
use cognate_runtime::{Engine, Ort};
use fs_err as fs;
use serde_json::json;

use super::checkpoint::Xorshift;
use super::decode::RECORD;
use super::machine::Machine;
use super::record::{self, Section};
use super::rows::judge;
use super::statistics::Bound;
use super::text::{self, Place, Precision, Way};
use super::train::multi30k;
use xtask::memory;
use xtask::onnxruntime::{self, Build};
use xtask::python;
use xtask::table::table;
use xtask::workspace::{Workspace, call};

/// Number of connections of the client, and so of concurrent requests.
const CONNECTIONS: usize = 256;
/// Minimum ratio to the highest rate of CTranslate2.
const RATE: Bound = Bound::AtLeast(2.0);
/// Maximum time until a server has loaded its model.
const PATIENCE: Duration = Duration::from_secs(120);

/// Measure requests that arrive at random, compared with FastAPI and CTranslate2
///
/// Servers of the bundled model answer requests of one sentence each: a Poisson process on the
/// loopback interface, in an open loop. Prints the latency at a low rate, beside that of calls of
/// the library, and the highest rate at which the 99th percentile is within its bound. Fails if
/// that rate is less than twice CTranslate2's. With --soak, only `cognate serve` runs, under a
/// long load. The first run installs packages from PyPI into target/bench/serve (0.3 GB).
#[derive(clap::Args)]
pub struct Options {
    /// Seconds of requests at each rate
    #[arg(long, default_value_t = 10.0)]
    pub seconds: f64,
    /// Bound of the 99th percentile of latencies in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 100.0)]
    pub bound: f64,
    /// Low rate in requests per second
    #[arg(long, value_name = "N", default_value_t = 10.0)]
    pub low: f64,
    /// Numbers of hypotheses of a sentence, separated by commas; 1 is greedy
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [1, 4])]
    pub beams: Vec<usize>,
    /// Numbers of workers of each server, separated by commas [default: 1, and the number of cores]
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub workers: Vec<NonZeroUsize>,
    /// Run only `cognate serve`
    #[arg(long)]
    pub alone: bool,
    /// Load `cognate serve`, in f32 and with the first of --beams, at 80% of its highest rate for
    /// this number of minutes; prints latencies and memory of each minute
    #[arg(long, value_name = "MINUTES")]
    pub soak: Option<NonZeroUsize>,
    /// With --soak: number of idle connections
    #[arg(long, value_name = "N", requires = "soak", default_value_t = 0)]
    pub idle: usize,
    /// Write the part of onnx/BENCHMARKS.md for this processor
    #[arg(long, conflicts_with_all = ["alone", "soak"])]
    pub write: bool,
    /// Succeed even if a bound is missed
    #[arg(long)]
    pub allow_missed: bool,
    /// An existing `cognate` built with the feature `serve`, instead of building it in release mode
    #[arg(long, value_name = "PROGRAM")]
    pub cognate: Option<PathBuf>,
    /// A Python with CTranslate2 and FastAPI, instead of a new environment
    #[arg(long, value_name = "PROGRAM")]
    pub python: Option<PathBuf>,
}

/// Latencies in milliseconds at a rate in requests per second.
#[derive(Clone, Copy)]
struct Load {
    rate: f64,
    median: f64,
    high: f64,
}

/// Runs the command.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(
        options.low > 0.0 && options.seconds > 0.0 && options.bound > 0.0,
        "expected numbers above 0"
    );
    let cognate = match &options.cognate {
        Some(program) => program.canonicalize().with_context(|| program.display().to_string())?,
        None => {
            call(workspace.cargo().args([
                "build",
                "--release",
                "--package",
                "cognate-command",
                "--features",
                "serve",
            ]))?;
            workspace.target("release/cognate")
        }
    };
    let (folder, root) = (workspace.target("bench/serve"), workspace.root());
    fs::create_dir_all(&folder)?;
    let requirements: Vec<&str> =
        text::REQUIREMENTS.into_iter().chain(["fastapi==0.165.0", "uvicorn==0.54.0"]).collect();
    let python = match &options.python {
        Some(program) => program.clone(),
        None if options.alone || options.soak.is_some() => PathBuf::new(),
        None => python::environment(&folder.join("python"), &requirements)?,
    };
    let library = onnxruntime::bring(workspace, Build::Cpu)?;
    // Also for calls of the library in this process.
    library.parent().into_iter().for_each(Ort::add_library_folder);
    let lines = multi30k(workspace).and_then(|files| files.into_iter().next());
    let lines = lines.unwrap_or_else(|| root.join("testdata/parallel/train.en"));
    let place = Place {
        cognate: &cognate,
        python: &python,
        script: root.join("crates/bench/python/text.py"),
        library: &library,
        model: root.join("testdata/multi30k-en-de"),
        text: lines,
        folder,
    };
    let lines: Vec<String> = fs::read_to_string(&place.text)?.lines().map(str::to_owned).collect();
    if let Some(minutes) = options.soak {
        return soak(&place, options, minutes.get(), &lines);
    }
    let ways: &[Way] =
        if options.alone { &[Way::Cognate] } else { &[Way::CTranslate2, Way::Cognate] };
    let (mut rows, mut compared, mut missed) = (Vec::new(), Vec::new(), Vec::new());
    for precision in Precision::ALL {
        ways.iter().try_for_each(|&way| place.prepare(way, precision))?;
        for &beams in &options.beams {
            let mut best = Vec::new();
            let library = call_library(&place, options, precision, beams, &lines)?;
            rows.push(vec![
                precision.ours().into(),
                beams.to_string(),
                "library".into(),
                "1".into(),
                format!("{:.1}", library.median),
                format!("{:.1}", library.high),
                "-".into(),
                "-".into(),
                "-".into(),
            ]);
            for &way in ways {
                let mut highest_rate = 0.0_f64;
                for workers in options.workers() {
                    let server = Server::start(&place, way, precision, beams, workers)?;
                    let run = |rate: f64| server.load(rate, options.seconds, &lines, beams);
                    run(options.low)?;
                    let low = run(options.low)?;
                    let most = highest(options.low, options.bound, run)?;
                    highest_rate = highest_rate.max(most.rate);
                    let number = |number: f64| format!("{number:.1}");
                    let what = [precision.ours().into(), beams.to_string(), format!("{way:?}")];
                    let figures =
                        [low.median, low.high, most.rate, most.median, most.high].map(number);
                    rows.push(
                        what.into_iter().chain([workers.to_string()]).chain(figures).collect(),
                    );
                }
                best.push(highest_rate);
            }
            if let [theirs, ours] = best[..] {
                let beams = if beams == 1 { "greedy".into() } else { format!("{beams} beams") };
                let (what, ratio) = (format!("{} {beams}", precision.ours()), ours / theirs);
                if !RATE.is_kept(ratio) {
                    let shown = RATE.shown(ratio);
                    missed.push(format!("{what}: {shown} times CTranslate2, {}", RATE.words()));
                }
                compared.push(vec![what, RATE.cell(ratio)]);
            }
        }
    }
    let low = format!("p50 at {} /s, ms", options.low);
    let header =
        ["type", "beams", "server", "workers", &low, "p99", "requests/s", "p50 there", "p99"];
    let mut text = format!(
        "{}{} seconds at each rate, a 99th percentile of at most {} ms.\n\n{}",
        Machine::here().sentence(),
        options.seconds,
        options.bound,
        table(&header, &rows)
    );
    if !compared.is_empty() {
        let header = ["", "requests/s to CTranslate2's, each with its best workers"];
        text += &format!("\n{}", table(&header, &compared));
    }
    println!("\n{text}");
    if options.write {
        let (introduction, processor) = (INTRODUCTION.into(), Machine::here().title);
        let section = Section { title: "Speed of the server", introduction, processor, text };
        record::put(&root.join("onnx").join(RECORD), &section)?;
        println!("written: onnx/{RECORD}");
    }
    judge(&missed, options.allow_missed)
}

const INTRODUCTION: &str =
    "Requests of one sentence each, a Poisson process in an open loop, the bundled model: `cognate serve` with `--target ort` exports, beside
CTranslate2 behind FastAPI, and *library*: calls of a warm translator in the client's process. Client and server share the machine, over
its loopback interface. Latencies include the time until one of 256 connections is free. Requests/s are the most with the 99th
percentile within its bound, with an accuracy of 5%; bold ratios miss their bound.

`cargo xtask bench serve --write` measures again and writes the part of the processor that it runs on.
";

impl Options {
    fn workers(&self) -> Vec<usize> {
        if !self.workers.is_empty() {
            return self.workers.iter().map(|workers| workers.get()).collect();
        }
        let cores = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        if cores > 1 { vec![1, cores] } else { vec![1] }
    }
}

/// Loads one server for a long time; every request must be answered.
fn soak(place: &Place<'_>, options: &Options, minutes: usize, lines: &[String]) -> Result<()> {
    let beams = *options.beams.first().context("--beams: expected a number")?;
    place.prepare(Way::Cognate, Precision::F32)?;
    let workers = options.workers.first().map_or(1, |workers| workers.get());
    let server = Server::start(place, Way::Cognate, Precision::F32, beams, workers)?;
    let most = highest(options.low, options.bound, |rate| {
        server.load(rate, options.seconds, lines, beams)
    })?;
    let rate = 0.8 * most.rate;
    ensure!(
        rate > 0.0,
        "the server does not keep {} ms at {} requests/s",
        options.bound,
        options.low
    );
    let ended = AtomicBool::new(false);
    let mut rows = Vec::new();
    thread::scope(|scope| {
        let idle = scope.spawn(|| server.hold(options.idle, &ended));
        let measured = (1..=minutes).try_for_each(|minute| {
            let load = server.load(rate, 60.0, lines, beams)?;
            let mebibytes = |field: &str| memory::of(server.child.id(), field).map_or("-".into(), |bytes| (bytes >> 20).to_string());
            let row =
                [minute.to_string(), format!("{:.1}", load.median), format!("{:.1}", load.high), mebibytes("RssAnon"), mebibytes("VmRSS")];
            eprintln!(
                "minute {}: median {} ms, 99th percentile {} ms, {} MiB of its own, {} MiB resident",
                row[0], row[1], row[2], row[3], row[4]
            );
            rows.push(row.to_vec());
            Ok::<_, anyhow::Error>(())
        });
        ended.store(true, Ordering::Relaxed);
        let held = idle.join().expect("a client does not panic");
        measured.and(held)
    })?;
    println!("\n{rate:.0} requests/s, {} silent connections", options.idle);
    println!(
        "{}",
        table(&["minute", "p50, ms", "p99, ms", "own memory, MiB", "resident, MiB"], &rows)
    );
    Ok(())
}

/// The highest rate within the bound, with an accuracy of 5%; 0 if the low rate exceeds it.
fn highest(low: f64, bound: f64, run: impl Fn(f64) -> Result<Load>) -> Result<Load> {
    let (mut kept, mut missed) = (run(low)?, None);
    if kept.high > bound {
        return Ok(Load { rate: 0.0, ..kept });
    }
    while missed.is_none_or(|missed| missed > 1.05 * kept.rate) {
        let load = run(missed.map_or(2.0 * kept.rate, |missed| f64::midpoint(missed, kept.rate)))?;
        eprintln!(
            "{:.0} requests/s: median {:.1} ms, 99th percentile {:.1} ms",
            load.rate, load.median, load.high
        );
        if load.high <= bound {
            kept = load;
        } else {
            missed = Some(load.rate);
        }
    }
    Ok(kept)
}

/// Latencies of calls of the library, in this process, at the same arrivals as a server's.
fn call_library(
    place: &Place<'_>,
    options: &Options,
    precision: Precision,
    beams: usize,
    lines: &[String],
) -> Result<Load> {
    let one = NonZeroUsize::new(1);
    let load_options = LoadOptions {
        engine: Engine::Ort,
        workers: one,
        threads: one,
        huge_pages: true,
        ..LoadOptions::default()
    };
    let decoding =
        DecodingOptions { beams: NonZeroUsize::new(beams), ..DecodingOptions::default() };
    let settings = TranslatorOptions { load: load_options, decoding, ..Default::default() };
    let model = ModelSource::find(&place.folder(Way::Cognate, precision))?;
    let translator = Translator::load(model, &settings)?;
    let run = || {
        load(options.low, options.seconds, lines, || {
            |line: &str| Ok(translator.translate(&[line]).map(drop)?)
        })
    };
    // The first run is a warm-up.
    run()?;
    run()
}

/// Calls clients at random times of this rate, and waits for the ends of the calls.
fn load<C: FnMut(&str) -> Result<()>>(
    rate: f64,
    seconds: f64,
    lines: &[String],
    new_client: impl Fn() -> C + Sync,
) -> Result<Load> {
    let mut random = Xorshift(7);
    // Between 0 and 1, both excluded.
    let mut uniform = || f64::from(random.draw()).mul_add(0.499_999, 0.5);
    let mut arrivals = Vec::new();
    let mut time = 0.0;
    while time < seconds {
        time -= uniform().ln() / rate;
        arrivals.push((time, &lines[(uniform() * lines.len() as f64) as usize % lines.len()]));
    }
    let (next, began) = (AtomicUsize::new(0), Instant::now());
    let client = || -> Result<Vec<f64>> {
        let (mut ask, mut latencies) = (new_client(), Vec::new());
        while let Some(&(time, line)) = arrivals.get(next.fetch_add(1, Ordering::Relaxed)) {
            thread::sleep(Duration::from_secs_f64(time).saturating_sub(began.elapsed()));
            ask(line)?;
            latencies.push(1000.0 * (began.elapsed().as_secs_f64() - time));
        }
        Ok(latencies)
    };
    let found = thread::scope(|scope| {
        let clients: Vec<_> = (0..CONNECTIONS).map(|_| scope.spawn(client)).collect();
        clients
            .into_iter()
            .map(|client| client.join().expect("a client does not panic"))
            .collect::<Result<Vec<_>>>()
    });
    let mut latencies = found?.concat();
    latencies.sort_by(f64::total_cmp);
    let part = |part: f64| latencies[((latencies.len() - 1) as f64 * part) as usize];
    Ok(Load { rate, median: part(0.5), high: part(0.99) })
}

/// A server, which is stopped when this value is dropped.
struct Server {
    child: Child,
    address: SocketAddr,
    way: Way,
}

impl Server {
    fn start(
        place: &Place<'_>,
        way: Way,
        precision: Precision,
        beams: usize,
        workers: usize,
    ) -> Result<Server> {
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let (model, workers) = (place.folder(way, precision), workers.to_string());
        let mut command = match way {
            Way::CTranslate2 => {
                let mut command = Command::new(place.python);
                command
                    .arg(place.script.with_file_name("served.py"))
                    .arg(model)
                    .arg(place.model.join("tokenizer.json"));
                command.args([
                    precision.theirs(),
                    &beams.to_string(),
                    &workers,
                    &address.port().to_string(),
                ]);
                command.env("PYTHONDONTWRITEBYTECODE", "1").env("OMP_NUM_THREADS", "1");
                command
            }
            Way::Cognate => {
                let mut command = Command::new(place.cognate);
                command.args([
                    "serve",
                    "--engine",
                    "ort",
                    "--threads",
                    "1",
                    "--workers",
                    &workers,
                    "--languages",
                    "m=en-de",
                ]);
                command.args([
                    "--listen",
                    &address.to_string(),
                    "--model",
                    &format!("m={}", model.display()),
                ]);
                command.env("ORT_DYLIB_PATH", place.library);
                command
            }
        };
        let log = fs::File::create(place.folder.join(format!("{way:?}.log")))?;
        let child =
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log.into_file()).spawn()?;
        let mut server = Server { child, address, way };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = server.child.try_wait()? {
                bail!("{way:?}: {status}; see its log in {}", place.folder.display());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "{way:?}: no server at {address} after {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Keeps connections that send nothing, and reopens those that the server closes, until `ended`
    /// is set.
    fn hold(&self, count: usize, ended: &AtomicBool) -> Result<()> {
        let mut connections = Vec::new();
        while !ended.load(Ordering::Relaxed) {
            while connections.len() < count {
                let stream = TcpStream::connect(self.address).context("a silent connection")?;
                stream.set_nonblocking(true)?;
                connections.push(stream);
            }
            // Nothing to read, but not closed.
            connections.retain(|stream| {
                stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            });
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }

    /// Sends requests at this rate, and waits for their answers.
    fn load(&self, rate: f64, seconds: f64, lines: &[String], beams: usize) -> Result<Load> {
        load(rate, seconds, lines, || {
            let mut connection = None;
            move |line: &str| self.ask(&mut connection, line, beams)
        })
    }

    /// One request on a connection, which is kept open.
    fn ask(
        &self,
        connection: &mut Option<BufReader<TcpStream>>,
        line: &str,
        beams: usize,
    ) -> Result<()> {
        let (path, body) = match self.way {
            Way::CTranslate2 => {
                ("/translate", json!({ "q": line, "source": "en", "target": "de" }))
            }
            Way::Cognate => {
                ("/v2/models/m/generate", json!({ "text_input": line, "num_beams": beams }))
            }
        };
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        let stream = match connection {
            Some(stream) => stream,
            None => {
                let stream = TcpStream::connect(self.address)?;
                stream.set_nodelay(true)?;
                connection.insert(BufReader::new(stream))
            }
        };
        stream.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let start = head.len();
            ensure!(
                stream.read_line(&mut head)? > 0,
                "{:?}: the server ended the connection",
                self.way
            );
            let line = head[start..].trim_end().to_lowercase();
            if let Some(found) = line.strip_prefix("content-length:") {
                length = found.trim().parse()?;
            }
            if line.is_empty() {
                break;
            }
        }
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer)?;
        let status = head.lines().next().unwrap_or_default();
        ensure!(
            status.contains(" 200 "),
            "{:?}: {status}: {}",
            self.way,
            String::from_utf8_lossy(&answer)
        );
        Ok(())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
