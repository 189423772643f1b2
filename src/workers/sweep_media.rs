//! Removes pictures that no message shows, some time after they were uploaded or last shown.
//!
//! Safe to run twice: see [`sweep_media`]. It belongs to no shard; every worker looks, and what one has another passes over.

use std::sync::Arc;
use std::time::Duration;

use super::WorkError;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::actions::sweep_media::sweep_media;

/// Sweeps pictures.
#[derive(Debug)]
pub struct SweepMedia {
    stores: Arc<Stores>,
}

impl SweepMedia {
    /// On these stores.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }
}

impl Worker for SweepMedia {
    const NAME: &'static str = "sweep_media";
    const PAUSE: Duration = Duration::from_secs(60);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let swept = sweep_media(&self.stores).await?;
        Ok(if swept.more { Next::AtOnce } else { Next::AfterPause })
    }
}
