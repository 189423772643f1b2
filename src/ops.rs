//! The second port: is the process alive, should requests be sent here, what does it measure. Never on the public network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::actions::Stores;
use crate::api::respond;
use crate::contract::operations::{Dependency, Readiness};

/// Time for each question to a store.
const ASK_TIMEOUT: Duration = Duration::from_millis(1_500);
/// How long an answer of the stores is good for, so that impatient probes cost nothing.
const READINESS_TTL: Duration = Duration::from_millis(500);
/// Time within which a request's head must arrive.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two clean-ups of histogram samples, for the case that nobody scrapes.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// What the second port knows.
#[derive(Clone)]
pub struct Operations(Arc<Known>);

struct Known {
    stores: Arc<Stores>,
    metrics: Option<PrometheusHandle>,
    draining: AtomicBool,
    last: Mutex<Option<(Instant, Readiness)>>,
}

impl Operations {
    /// Watches these stores; `metrics` is `None` where another recorder was installed.
    #[must_use]
    pub fn new(stores: Arc<Stores>, metrics: Option<PrometheusHandle>) -> Self {
        Self(Arc::new(Known { stores, metrics, draining: AtomicBool::new(false), last: Mutex::new(None) }))
    }

    /// From now on `/readyz` says no.
    pub fn drain(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Whether requests should be sent here. Redis decides alone: while Postgres is away, warm conversations go on.
    pub async fn readiness(&self) -> Readiness {
        let draining = self.0.draining.load(Ordering::Acquire);
        let mut last = self.0.last.lock().await;
        let fresh = last.as_ref().filter(|(at, _)| at.elapsed() < READINESS_TTL).map(|(_, known)| known.clone());
        let known = match fresh {
            Some(known) => known,
            None => {
                let (redis, postgres) = tokio::join!(redis_state(&self.0.stores), postgres_state(&self.0.stores));
                let known = Readiness { ready: redis.ok, draining, redis, postgres };
                *last = Some((Instant::now(), known.clone()));
                known
            }
        };
        Readiness { ready: known.ready && !draining, draining, ..known }
    }
}

async fn redis_state(stores: &Stores) -> Dependency {
    match timeout(ASK_TIMEOUT, stores.link.info("memory")).await {
        Err(_) => broken("no answer in time"),
        Ok(Err(error)) => broken(&error.to_string()),
        Ok(Ok(nodes)) if nodes.is_empty() => broken("no node answers"),
        Ok(Ok(nodes)) => {
            match nodes.iter().find_map(|(node, text)| eviction_policy(text).filter(|p| *p != "noeviction").map(|p| (node, p))) {
                Some((node, policy)) => broken(&format!("{node} evicts keys (maxmemory-policy {policy}); it must be noeviction")),
                None => Dependency { ok: true, detail: None },
            }
        }
    }
}

/// The policy out of `INFO memory`.
#[must_use]
pub fn eviction_policy(info: &str) -> Option<&str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix("maxmemory_policy:"))
}

async fn postgres_state(stores: &Stores) -> Dependency {
    match timeout(ASK_TIMEOUT, stores.archive.ping()).await {
        Ok(Ok(())) => Dependency { ok: true, detail: None },
        Ok(Err(_)) => broken("no answer; warm conversations go on"),
        Err(_) => broken("no answer in time; warm conversations go on"),
    }
}

fn broken(detail: &str) -> Dependency {
    Dependency { ok: false, detail: Some(detail.to_owned()) }
}

fn router(operations: Operations) -> Router {
    Router::new().route("/healthz", get(healthz)).route("/readyz", get(readyz)).route("/metrics", get(show_metrics)).with_state(operations)
}

async fn healthz() -> Response {
    ([(CONTENT_TYPE, "text/plain; charset=utf-8")], "ok\n").into_response()
}

async fn readyz(State(operations): State<Operations>) -> Response {
    let readiness = operations.readiness().await;
    let status = if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    respond::json(status, &readiness)
}

async fn show_metrics(State(operations): State<Operations>) -> Response {
    match &operations.0.metrics {
        Some(handle) => ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], handle.render()).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

/// Serves the second port until `stop`.
pub async fn serve(listener: TcpListener, operations: Operations, stop: CancellationToken) {
    let service = router(operations.clone());
    let mut upkeep = tokio::time::interval(UPKEEP_INTERVAL);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = upkeep.tick() => {
                if let Some(handle) = &operations.0.metrics {
                    handle.run_upkeep();
                }
            }
            accepted = listener.accept() => {
                let Ok((socket, _)) = accepted else {
                    // Out of file descriptors, most likely; without a pause this would spin.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                };
                let service = TowerToHyperService::new(service.clone());
                let serving = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(HEADER_TIMEOUT)
                    .serve_connection(TokioIo::new(socket), service);
                let stop = stop.clone();
                tokio::spawn(async move { stop.run_until_cancelled(serving).await });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_policy_in_info() {
        assert_eq!(eviction_policy("# Memory\r\nused_memory:1\r\nmaxmemory_policy:allkeys-lru\r\n"), Some("allkeys-lru"));
        assert_eq!(eviction_policy("# Memory\r\n"), None);
    }
}
