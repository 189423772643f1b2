//! seqline: private chat for an application's own users.
pub mod actions;
pub mod api;
pub mod clock;
pub mod commands;
pub mod contract;
pub mod delivery;
pub mod domain;
pub mod embedded;
pub mod identity;
pub mod metrics;
pub mod postgres;
pub mod redis;
pub mod settings;
pub mod workers;
