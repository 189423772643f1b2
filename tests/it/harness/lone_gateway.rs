//! A gateway's HTTP surface and hub on given stores, for tests that look into the hub.

use std::net::SocketAddr;
use std::sync::Arc;

use seqline::actions::Stores;
use seqline::api::{AppState, Parts, listener, router::router};
use seqline::delivery::OpenStreams;
use seqline::identity::Keyring;
use seqline::identity::token::Expected;
use tokio_util::sync::CancellationToken;

use super::stores;
use super::user::SECRET;

/// A gateway.
pub struct LoneGateway {
    /// Its hub.
    pub hub: Arc<OpenStreams>,
    /// Its address.
    pub address: SocketAddr,
    stop: CancellationToken,
}

impl LoneGateway {
    /// On these stores, with these flags.
    pub async fn start(redis_url: &str, database_url: &str, flags: &[&str]) -> Self {
        Self::on(stores::open(redis_url, database_url, flags).await)
    }

    fn on(stores: Arc<Stores>) -> Self {
        let stop = CancellationToken::new();
        let hub = OpenStreams::start(stores.clone(), format!("{:x}", rand::random::<u64>()), stop.clone());
        let keyring = Arc::new(Keyring::new(&[SECRET], None, Expected::default()).unwrap());
        let (settings, clock) = (stores.settings.clone(), stores.clock);
        let state = AppState::new(Parts { stores, hub: hub.clone(), keyring, settings, clock, demo: None });
        let listener = listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(listener::serve(listener, router(state), stop.clone()));
        Self { hub, address, stop }
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for LoneGateway {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}
