//! Works out what archived messages are found by: new ones, edits, deletions.
//!
//! Safe to run twice: notes that one worker holds are passed over by the others, and of two versions of a message the newer stands
//! (`postgres/search_queue.rs`). While it does not run, messages are found a little later; nothing that was deleted is shown, for a search
//! looks at every message as it is.

use std::sync::Arc;
use std::time::Duration;

use super::WorkError;
use super::repeat::{Next, Worker};
use crate::actions::Stores;
use crate::metrics;

/// Indexes for the whole installation.
#[derive(Debug)]
pub struct IndexMessages {
    stores: Arc<Stores>,
}

impl IndexMessages {
    /// On these stores.
    #[must_use]
    pub fn new(stores: Arc<Stores>) -> Self {
        Self { stores }
    }
}

impl Worker for IndexMessages {
    const NAME: &'static str = "index_messages";
    const PAUSE: Duration = Duration::from_millis(300);

    async fn run_once(&mut self) -> Result<Next, WorkError> {
        let indexed = self.stores.archive.index_messages().await?;
        // The note's age by two clocks; it tells seconds from minutes.
        let waited = indexed.oldest.map_or(0, |left_at| (self.stores.clock.now() - left_at).max(0));
        metrics::SEARCH_LAG_SECONDS.set_f64(&[], Duration::from_millis(waited.unsigned_abs()).as_secs_f64());
        Ok(if indexed.more { Next::AtOnce } else { Next::AfterPause })
    }
}
