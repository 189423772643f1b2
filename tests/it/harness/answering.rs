//! A server of tests that answers HTTP: what push services and the host application's server have in common.

use std::future::Future;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A server on a port of its own. It ends with this, with everything that is under way.
pub struct Answering {
    port: u16,
    serving: JoinHandle<()>,
}

impl Answering {
    /// One that answers so; an error hangs up.
    pub async fn start<F>(answer: impl Fn(Request<Incoming>) -> F + Clone + Send + 'static) -> Self
    where
        F: Future<Output = std::io::Result<Response<Full<Bytes>>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let Ok((socket, _)) = listener.accept().await else { continue };
                let socket = hyper_util::rt::TokioIo::new(socket);
                connections.spawn(hyper::server::conn::http1::Builder::new().serve_connection(socket, service_fn(answer.clone())));
            }
        });
        Self { port, serving }
    }

    /// Where it listens.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// It goes away.
    pub fn stop(&self) {
        self.serving.abort();
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop();
    }
}
