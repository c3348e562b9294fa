//! Servers of a test, and a client that sends what it is told.

use clap::Parser;
use cognate_serve::{Arguments, Error};
use cognate_testing::bundled_checkpoint;
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

#[derive(Parser)]
struct Command {
    #[command(flatten)]
    arguments: Arguments,
}

/// How long an answer may take where processors are busy.
const PATIENCE: &str = "600";

/// Starts a server with these options, which runs until the tests end.
pub(crate) fn start(options: &[&str], before: &[&str]) -> Result<SocketAddr, Error> {
    let defaults = [["--engine", "tract"], ["--listen", "127.0.0.1:0"], ["--timeout", PATIENCE]];
    let defaults = defaults.iter().filter(|[name, _]| !options.contains(name)).flatten();
    let words = ["serve"].iter().chain(before).chain(defaults).chain(options);
    let Command { arguments } = Command::parse_from(words);
    let (sender, started) = mpsc::channel();
    let serving = thread::spawn(move || {
        cognate_serve::run(&arguments, |address| sender.send(address).unwrap())
    });
    started.recv().map_err(|_| serving.join().unwrap().unwrap_err())
}

/// A client of a server of the bundled model.
pub(crate) fn server(options: &[&str]) -> Client {
    server_of(&bundled_checkpoint(), options)
}

/// A client of a server of the bundled model in this folder.
pub(crate) fn server_of(folder: &Path, options: &[&str]) -> Client {
    let model = format!("multi30k={}", folder.display());
    Client {
        address: start(options, &["--model", &model, "--languages", "multi30k=en-de"]).unwrap(),
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
}

impl Client {
    /// Sends bytes, and returns status, head and body.
    pub(crate) fn raw(&self, bytes: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(PATIENCE.parse().unwrap()))).unwrap();
        let mut answer = Vec::new();
        // A server that has answered may end the connection before it has read all.
        let _ = stream.write_all(bytes);
        let _ = stream.read_to_end(&mut answer);
        let end = answer
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .map_or(answer.len(), |end| end + 4);
        let body = answer.split_off(end);
        let head = String::from_utf8(answer).unwrap();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        let body = if head.contains("transfer-encoding: chunked") { joined(&body) } else { body };
        (status, head, body)
    }

    pub(crate) fn send(
        &self,
        method: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> (u16, String, Vec<u8>) {
        let length = if headers.contains("Transfer-Encoding") {
            String::new()
        } else {
            format!("Content-Length: {}\r\n", body.len())
        };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{length}{headers}\r\n\r\n"
        );
        self.raw(&[head.as_bytes(), body].concat())
    }

    pub(crate) fn post(&self, path: &str, kind: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let (status, _, body) = self.send("POST", path, &format!("Content-Type: {kind}"), body);
        (status, body)
    }

    /// Calls a method over gRPC, but in HTTP/1.1; returns the status, and the message of the answer
    /// or of the error.
    pub(crate) fn grpc(&self, method: &str, headers: &str, body: &[u8]) -> (u32, Vec<u8>) {
        let path = format!("/inference.GRPCInferenceService/{method}");
        let headers = format!("Content-Type: application/grpc\r\n{headers}");
        let (status, head, mut answer) = self.send("POST", &path, &headers, body);
        let header = |name: &str| head.lines().find_map(|line| line.strip_prefix(name));
        assert_eq!(status, 200, "{method} {head}");
        match header("grpc-status: ") {
            Some(code) => (
                code.parse().unwrap(),
                header("grpc-message: ").unwrap_or_default().as_bytes().to_vec(),
            ),
            None => (0, answer.split_off(5)),
        }
    }

    pub(crate) fn json(&self, path: &str, body: &Value) -> Value {
        let (status, answer) = self.post(path, "application/json", body.to_string().as_bytes());
        assert_eq!(status, 200, "{path} {body}: {}", String::from_utf8_lossy(&answer));
        serde_json::from_slice(&answer).unwrap()
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        let (status, _, answer) = self.send("GET", path, "X-A: b", b"");
        assert_eq!(status, 200, "{path}");
        serde_json::from_slice(&answer).unwrap()
    }

    /// Sends JSON and the bytes after it; returns the status, and JSON and bytes of the answer.
    pub(crate) fn binary(&self, path: &str, head: &Value, bytes: &[u8]) -> (u16, Value, Vec<u8>) {
        let head = head.to_string();
        let headers = format!("Inference-Header-Content-Length: {}", head.len());
        let (status, headers, mut answer) =
            self.send("POST", path, &headers, &[head.as_bytes(), bytes].concat());
        let length = headers
            .lines()
            .find_map(|line| line.strip_prefix("inference-header-content-length: "))
            .unwrap();
        let rest = answer.split_off(length.parse().unwrap());
        (status, serde_json::from_slice(&answer).unwrap(), rest)
    }
}

/// The body of chunks.
fn joined(mut chunks: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = chunks.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&chunks[..end]).unwrap(), 16).unwrap();
        body.extend(&chunks[end + 2..][..size]);
        chunks = &chunks[end + 2 + size + 2..];
    }
    body
}

/// A message of gRPC in its frame.
pub(crate) fn framed(message: &[u8]) -> Vec<u8> {
    [&[0][..], &u32::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// A binary tensor of strings.
pub(crate) fn binary(texts: &[&str]) -> Vec<u8> {
    let of_text = |text: &&str| {
        [&u32::try_from(text.len()).unwrap().to_le_bytes()[..], text.as_bytes()].concat()
    };
    texts.iter().flat_map(of_text).collect()
}
