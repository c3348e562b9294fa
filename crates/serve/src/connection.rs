//! A client's connection, with limits of time that hyper does not have: for the first bytes, which
//! tell the version of HTTP, and for a client that does not read. A client that still sends when the
//! server has answered is read for a while.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The first bytes of every connection of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// A closed connection is read until its client has sent nothing for so long.
const LINGER: Duration = Duration::from_secs(1);

pub(crate) struct Connection {
    stream: TcpStream,
    /// Bytes that were read to find the version.
    first: Vec<u8>,
    limit: Duration,
    /// The end of a write that waits for the client.
    stalled: Option<Pin<Box<Sleep>>>,
    closing: Option<Closing>,
}

struct Closing {
    silence: Pin<Box<Sleep>>,
    end: Instant,
}

impl Connection {
    /// Reads the bytes that tell the version.
    ///
    /// # Errors
    /// If the client takes longer than `limit`, or disconnects. `limit` is also that of each write.
    pub(crate) async fn begin(stream: TcpStream, limit: Duration) -> io::Result<Self> {
        let read = async {
            let mut first = Vec::new();
            while first.len() < PREFACE.len() && PREFACE.starts_with(&first) {
                stream.readable().await?;
                let mut bytes = [0; PREFACE.len()];
                match stream.try_read(&mut bytes[first.len()..]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(count) => first.extend_from_slice(&bytes[first.len()..][..count]),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(first)
        };
        let first = tokio::time::timeout(limit, read).await??;
        Ok(Self { stream, first, limit, stalled: None, closing: None })
    }

    /// The result of a write, or an error if the client has read nothing for too long.
    fn in_time(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.limit;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        stalled.as_mut().poll(context).map(|()| Err(ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.first.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.first.len().min(buffer.remaining());
        buffer.put_slice(&self.first[..count]);
        self.first.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.in_time(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    /// Reads on after the end of writing: the system resets a connection with unread bytes, and a
    /// client that is still sending would lose its answer.
    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        let Self { stream, limit, closing, .. } = &mut *self;
        let Closing { silence, end } = closing.get_or_insert_with(|| Closing {
            silence: Box::pin(tokio::time::sleep(LINGER)),
            end: Instant::now() + *limit,
        });
        let mut bytes = [0; 1 << 13];
        loop {
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut *stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() && Instant::now() < *end => {
                    silence.as_mut().reset(Instant::now() + LINGER)
                }
                Poll::Ready(_) => return Poll::Ready(Ok(())),
                Poll::Pending => return silence.as_mut().poll(context).map(Ok),
            }
        }
    }
}
