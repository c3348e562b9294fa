//! The workers of a model that takes one request at a time, and the requests that wait for them.

use crate::error::Failure;
use axum::http::StatusCode;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit for each worker, given in the order of arrival.
pub(crate) struct Room {
    workers: Arc<Semaphore>,
    /// One permit for each request that may wait.
    places: Semaphore,
    max_waiting: usize,
}

impl Room {
    pub(crate) fn new(workers: usize, max_waiting: usize) -> Self {
        let max_waiting = max_waiting.min(Semaphore::MAX_PERMITS);
        let places = Semaphore::new(max_waiting);
        Self { workers: Arc::new(Semaphore::new(workers)), places, max_waiting }
    }

    /// A worker, as soon as one is free.
    ///
    /// # Errors
    /// If too many requests are waiting.
    pub(crate) async fn worker(&self) -> Result<OwnedSemaphorePermit, Failure> {
        if let Ok(worker) = self.workers.clone().try_acquire_owned() {
            return Ok(worker);
        }
        let limit = self.max_waiting;
        let _place = self.places.try_acquire().map_err(|_| {
            let message = format_args!(
                "too many requests are waiting; expected at most {limit}; try again later"
            );
            Failure::new(StatusCode::TOO_MANY_REQUESTS, message)
        })?;
        let worker = self.workers.clone().acquire_owned().await;
        worker.map_err(|error| Failure::new(StatusCode::SERVICE_UNAVAILABLE, error))
    }

    /// The number of requests that wait for a worker.
    pub(crate) fn n_waiting(&self) -> usize {
        self.max_waiting - self.places.available_permits()
    }
}
