//! Connections: accepted up to a limit, closed when they are idle for too long or the process is
//! terminated. HTTP/1.1, and HTTP/2 without an upgrade, which gRPC needs.

use crate::arguments::Arguments;
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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
        && files < arguments.max_connections as u64
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

async fn accept(
    listener: TcpListener,
    (routes, arguments): (Router, &Arguments),
    asked_to_end: impl Future<Output = ()>,
) {
    let (graceful, room) =
        (GracefulShutdown::new(), Arc::new(Semaphore::new(arguments.max_connections)));
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
        let (service, watcher) = (TowerToHyperService::new(routes.clone()), graceful.watcher());
        let limit = arguments.client_timeout;
        tokio::spawn(async move {
            let mut builder = Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(limit);
            // Checks whether a silent peer still exists.
            builder
                .http2()
                .timer(TokioTimer::new())
                .keep_alive_interval(limit)
                .keep_alive_timeout(limit)
                .max_concurrent_streams(STREAMS);
            if let Ok(connection) = Connection::begin(stream, limit).await {
                let connection =
                    watcher.watch(builder.serve_connection(TokioIo::new(connection), service));
                if let Err(error) = connection.await {
                    // An error of the client, or it disconnected.
                    tracing::debug!(error, "connection ended");
                }
            }
            drop(permit);
        });
    }
    drop(listener);
    tracing::info!("stopping");
    // No request takes longer than its time limit.
    let longest = arguments.timeout.max(arguments.audio_timeout);
    let _ = tokio::time::timeout(longest, graceful.shutdown()).await;
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
