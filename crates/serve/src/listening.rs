//! Connections: accepted up to a limit, closed when they are idle for too long or too old, or the
//! process is terminated. HTTP/1.1, and HTTP/2 without an upgrade, which gRPC needs.

use crate::arguments::Arguments;
use crate::connection::Connection;
use crate::error::{Error, ErrorKind, Result};
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Runtime;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Semaphore, watch};

/// Pause after an error of the system, such as too many open files.
const PAUSE: Duration = Duration::from_millis(50);
/// Maximum number of concurrent requests on a connection of HTTP/2.
const STREAMS: u32 = 256;
/// Maximum number of connections that wait to be accepted: as many as the system allows.
const BACKLOG: u32 = 65_535;

/// The address of a server that does not listen yet: clients are refused.
pub(crate) struct Address {
    runtime: Runtime,
    socket: TcpSocket,
    address: SocketAddr,
}

impl Address {
    /// # Errors
    /// If the address cannot be used.
    pub(crate) fn take(address: SocketAddr) -> Result<Self> {
        let take = || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            let socket = {
                let _entered = runtime.enter();
                if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?
            };
            // Connections of a server that has ended keep the address for minutes.
            #[cfg(unix)]
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            Ok(Self { runtime, socket, address })
        };
        take().map_err(|error| unusable(address, &error))
    }

    /// Serves until the process is terminated.
    ///
    /// # Errors
    /// If the address cannot be used, or the process is terminated twice.
    pub(crate) fn serve(
        self,
        arguments: &Arguments,
        routes: Router,
        started: impl FnOnce(SocketAddr),
    ) -> Result<()> {
        let Self { runtime, socket, address } = self;
        if let Some(files) = allow_open_files()
            && files < arguments.max_connections.get() as u64
        {
            tracing::warn!(
                "the system allows {files} open files, and so fewer connections than --max-connections"
            );
        }
        let network = |error: std::io::Error| unusable(address, &error);
        let served = runtime.block_on(async {
            let terminations = Terminations::new().map_err(network)?;
            let listener = socket.listen(BACKLOG).map_err(network)?;
            let address = listener.local_addr().map_err(network)?;
            tracing::info!(%address, "listening");
            started(address);
            accept(listener, (routes, arguments), terminations).await
        });
        // Work of requests that have not been answered in time.
        runtime.shutdown_background();
        served
    }
}

fn unusable(address: SocketAddr, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Network, format_args!("{address}: {error}"))
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
    mut terminations: Terminations,
) -> Result<()> {
    let room = Arc::new(Semaphore::new(permits(arguments.max_connections)));
    // Each connection has a receiver until it ends.
    let (stop, stopped) = watch::channel(());
    let limits = Limits {
        client: arguments.client_timeout,
        age: arguments.max_connection_age,
        request: arguments.timeout.max(arguments.audio_timeout),
    };
    loop {
        let next = async {
            let permit = room.clone().acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (stream, permit) = tokio::select! {
            () = terminations.next() => break,
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
    tokio::select! {
        _ = tokio::time::timeout(limits.request, stop.closed()) => Ok(()),
        () = terminations.next() => Err(Error::new(
            ErrorKind::Interrupted,
            format_args!("terminated again, with {} open connections", stop.receiver_count()),
        )),
    }
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

/// Signals that terminate the process.
struct Terminations {
    #[cfg(unix)]
    signals: [Signal; 2],
}

impl Terminations {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            #[cfg(unix)]
            signals: [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?],
        })
    }

    /// Completes at the next signal.
    async fn next(&mut self) {
        #[cfg(unix)]
        {
            let [interrupt, terminate] = &mut self.signals;
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        #[cfg(not(unix))]
        let _ = tokio::signal::ctrl_c().await;
    }
}
