//! Clients that send or read too slowly, or more than is read: their connections end.

use crate::client::{Client, server};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// What a client sends before it stops, and a part of the answer.
const SLOW: [(&[u8], &str); 6] = [
    (b"", ""),
    (b"P", ""),
    (b"PRI * HTTP/2.0\r\n\r\nS", ""),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", ""),
    (b"POST /translate HTTP/1.1\r\nContent-Le", ""),
    (b"POST /translate HTTP/1.1\r\nHost: here\r\nContent-Length: 99\r\n\r\n{\"q\":", " 408 "),
];

fn connected(client: Client) -> TcpStream {
    let stream = TcpStream::connect(client.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

/// The preface of HTTP/2, settings without room for an answer, and `GET /health`.
const NO_ROOM: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \0\0\x06\x04\0\0\0\0\0\0\x04\0\0\0\0\
    \0\0\x0e\x01\x05\0\0\0\x01\x82\x86\x04\x07/health\x01\x01a";

/// Whether the only connection of the server is free; where processors are busy this client can be
/// a slow one, too.
fn is_served(client: Client) -> bool {
    let ask = |_| {
        let (mut stream, mut answer) = (connected(client), String::new());
        let asked = b"GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        let _ = stream.write_all(asked);
        stream.read_to_string(&mut answer).is_ok() && answer.contains(" 200 ")
    };
    (0..3).any(ask)
}

#[test]
fn connections_above_the_limit_wait() {
    let client = server(&["--max-connections", "1"]);
    let (mut first, mut second) = (connected(client), connected(client));
    let (asked, mut byte) = (b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n", [0]);
    first.write_all(asked).unwrap();
    first.read_exact(&mut byte).unwrap();
    second.write_all(asked).unwrap();
    second.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(second.read_exact(&mut byte).is_err());
    drop(first);
    second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    second.read_exact(&mut byte).unwrap();
}

#[test]
fn slow_clients_lose_their_connection() {
    let client = server(&["--max-connections", "1", "--client-timeout", "0.5"]);
    for (sent, expected) in SLOW {
        let (mut slow, mut answer) = (connected(client), Vec::new());
        slow.write_all(sent).unwrap();
        assert!(is_served(client), "after {:?}", String::from_utf8_lossy(sent));
        slow.read_to_end(&mut answer).unwrap();
        assert!(String::from_utf8_lossy(&answer).contains(expected), "{answer:?}");
    }
    let mut reads_nothing = connected(client);
    // Answers of 30 MB.
    let asked = b"GET /openapi.json HTTP/1.1\r\nHost: a\r\n\r\n".repeat(3000);
    reads_nothing.write_all(&asked).unwrap();
    assert!(is_served(client), "after answers that nobody read");
}

#[test]
fn old_connections_end_after_their_requests() {
    let age = ["--max-connections", "1", "--max-connection-age", "0.2", "--client-timeout", "300"];
    let client = server(&[&age[..], &["--timeout", "1", "--audio-timeout", "1"]].concat());
    let mut takes_nothing = connected(client);
    takes_nothing.write_all(NO_ROOM).unwrap();
    assert!(is_served(client), "after an answer that nobody took");
    let (mut kept, mut answer) = (connected(client), String::new());
    kept.write_all(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    kept.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(" 200 "), "{answer}");
    // Requests that have begun are answered.
    let asked = json!({ "text_input": "Dogs.", "min_new_tokens": 249, "max_new_tokens": 250 });
    let client = server(&["--max-connection-age", "0.001"]);
    client.json("/v2/models/multi30k/generate", &asked);
}
