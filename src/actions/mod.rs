//! What the product does, one file per verb: knows stores and domain; no HTTP, no Redis commands, no SQL.

use std::sync::Arc;

use crate::clock::Clock;
use crate::postgres::Archive;
use crate::redis::keys::Keys;
use crate::redis::link::Link;
use crate::settings::Settings;

/// The stores and what belongs to them, shared by everything that runs in a process as an `Arc<Stores>`.
#[derive(Clone, Debug)]
pub struct Stores {
    /// The live state.
    pub link: Link,
    /// The names of its keys.
    pub keys: Keys,
    /// The archive.
    pub archive: Archive,
    /// Settings.
    pub settings: Arc<Settings>,
    /// The wall clock; order never depends on it.
    pub clock: Clock,
}
