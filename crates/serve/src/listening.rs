//! Connections: accepted up to a limit, closed when they are idle for too long or too old, or the
//! process is terminated. HTTP/1.1, and HTTP/2 without an upgrade, which gRPC needs.

use crate::arguments::Arguments;
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

/// Pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of concurrent requests on a connection of HTTP/2.
const STREAMS: u32 = 256;

/// Serves until the process is terminated.
pub(crate) fn serve(
    arguments: &Arguments,
    routes: Router,
    started: impl FnOnce(SocketAddr),
) -> Result<()> {
    let network = |error: std::io::Error| {
        Error::new(ErrorKind::Network, format_args!("{}: {error}", arguments.listen))
    };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(network)?;
    if let Some(files) = allow_open_files()
        && files < arguments.max_connections.get() as u64
    {
        tracing::warn!(
            "the system allows {files} open files, and so fewer connections than --max-connections"
        );
    }
    runtime.block_on(async {
        let listener = TcpListener::bind(arguments.listen).await.map_err(network)?;
        let address = listener.local_addr().map_err(network)?;
        tracing::info!(%address, "listening");
        started(address);
        let asked_to_end = asked_to_end().map_err(network)?;
        accept(listener, (routes, arguments), asked_to_end).await;
        Ok(())
    })
}

/// Raises the limit of open files, and so of connections, to the maximum of the system; returns it,
/// if there is a limit.
fn allow_open_files() -> Option<u64> {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
        // The actual limit of some systems is lower than reported.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
        getrlimit(Resource::Nofile).current
    }
    #[cfg(not(unix))]
    None
}

/// As many permits as a semaphore can have.
pub(crate) fn permits(count: NonZeroUsize) -> usize {
    count.get().min(Semaphore::MAX_PERMITS)
}

async fn accept(
    listener: TcpListener,
    (routes, arguments): (Router, &Arguments),
    asked_to_end: impl Future<Output = ()>,
) {
    let room = Arc::new(Semaphore::new(permits(arguments.max_connections)));
    // Each connection has a receiver until it ends.
    let (stop, stopped) = watch::channel(());
    let limits = Limits {
        client: arguments.client_timeout,
        age: arguments.max_connection_age,
        request: arguments.timeout.max(arguments.audio_timeout),
    };
    let mut asked_to_end = std::pin::pin!(asked_to_end);
    loop {
        let next = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (stream, permit) = tokio::select! {
            () = &mut asked_to_end => break,
            (Ok((stream, _)), permit) = next => (stream, permit),
            else => {
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        // Responses are small and latency matters.
        let _ = stream.set_nodelay(true);
        let (service, stopped) = (TowerToHyperService::new(routes.clone()), stopped.clone());
        tokio::spawn(async move {
            limits.converse(stream, service, stopped).await;
            drop(permit);
        });
    }
    drop((listener, stopped));
    tracing::info!("stopping");
    let _ = stop.send(());
    let _ = tokio::time::timeout(limits.request, stop.closed()).await;
}

/// The limits of time of a connection.
#[derive(Clone, Copy)]
struct Limits {
    client: Duration,
    age: Duration,
    /// No request takes longer.
    request: Duration,
}

impl Limits {
    /// Answers the requests of a connection until it ends. When it has its age or the server stops,
    /// the requests that have begun are the last.
    async fn converse(
        self,
        stream: TcpStream,
        service: TowerToHyperService<Router>,
        mut stopped: watch::Receiver<()>,
    ) {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(self.client);
        // Checks whether a silent peer still exists.
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(self.client)
            .keep_alive_timeout(self.client)
            .max_concurrent_streams(STREAMS);
        let begun = tokio::select! {
            begun = Connection::begin(stream, self.client) => begun,
            _ = stopped.changed() => return,
        };
        let Ok(connection) = begun else { return };
        let connection = builder.serve_connection(TokioIo::new(connection), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => Some(ended),
            _ = stopped.changed() => None,
            () = tokio::time::sleep(self.age) => None,
        };
        let ended = match ended {
            Some(ended) => ended,
            None => {
                connection.as_mut().graceful_shutdown();
                // A client of HTTP/2 can refuse to take its answers for ever.
                tokio::time::timeout(self.request, connection).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = ended {
            // An error of the client, or it disconnected.
            tracing::debug!(error, "connection ended");
        }
    }
}

/// Completes when the process is terminated.
fn asked_to_end() -> std::io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    Ok(async move {
        #[cfg(unix)]
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    })
}
