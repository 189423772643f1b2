//! What the tests stand on: private servers, fleets of gateways and workers, and clients that speak to them as applications do.
//!
//! - [`servers`]: a Redis (single or Cluster) of a test's own, a database of its own on the one Postgres that a test process starts.
//! - [`standby`]: servers that take over from each other.
//! - [`fleet`]: gateways and workers in this process; [`processes`]: the same as processes, to kill and to halt.
//! - [`proxy`]: stands before a store and loses questions or answers when told to.
//! - [`user`], [`client`], [`stream`], [`frames`]: tokens, requests, event streams. They know the contract and nothing of the code.
//! - [`described`]: holds every answer and every event that a test gets against the OpenAPI document.
//! - [`store_clock`]: a clock of the stores' own, to step it.
//! - [`answering`]: a server that answers HTTP, on which the next two stand.
//! - [`host_application`]: a server that is told and asked, and answers as a test wants it to.
//! - [`push_service`]: a push service, and browsers that decrypt what it gets.
//! - [`wait`]: wait for a condition, never for a time.
//!
//! Everything is torn down when it is dropped, also by a panic, and by the kernel's help when the test process is killed.
#![allow(dead_code, unused_imports, reason = "the harness is one piece; each test uses the part it needs")]

pub mod answering;
pub mod client;
pub mod described;
pub mod fleet;
pub mod frames;
pub mod host_application;
pub mod log_writer;
pub mod lone_gateway;
pub mod pictures;
pub mod processes;
pub mod proxy;
pub mod push_service;
pub mod servers;
pub mod standby;
pub mod store_clock;
pub mod stores;
pub mod stream;
pub mod user;
pub mod wait;

pub use client::{Answer, Client, pair, path_segment};
pub use fleet::{Fleet, PATIENCE};
pub use host_application::{Call, HostApplication, Reply};
pub use processes::{Process, ProcessFleet};
pub use servers::{PrivateRedis, RedisKind, TestDatabase};
pub use standby::Standby;
pub use store_clock::StoreClock;
pub use stores::StorePair;
pub use stream::{Event, EventStream, StreamRequest};
pub use user::User;
pub use wait::{eventually, eventually_some};

/// What a test body that runs on both kinds of Redis may ask for.
pub trait MadeOn {
    /// Makes it on this kind of Redis.
    async fn made_on(kind: RedisKind) -> Self;
}

impl MadeOn for RedisKind {
    async fn made_on(kind: RedisKind) -> Self {
        kind
    }
}

impl MadeOn for PrivateRedis {
    async fn made_on(kind: RedisKind) -> Self {
        PrivateRedis::start(kind).await
    }
}

/// Makes two tests of one body: `name::single` on one Redis server, `name::cluster` on a Cluster of three.
///
/// The body takes one argument, which is made for it: a `Fleet` (two gateways, one worker), a `PrivateRedis`, or the bare `RedisKind`.
/// ```ignore
/// on_both! {
///     async fn a_message_arrives(fleet: Fleet) { … }
/// }
/// ```
macro_rules! on_both {
    ($($(#[$note:meta])* async fn $name:ident($($made:ident)+: $what:ty) $body:block)+) => { $(
        mod $name {
            #[allow(unused_imports)]
            use super::*;

            $(#[$note])*
            async fn body($($made)+: $what) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn single() {
                body(<$what as $crate::harness::MadeOn>::made_on($crate::harness::RedisKind::Single).await).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn cluster() {
                body(<$what as $crate::harness::MadeOn>::made_on($crate::harness::RedisKind::Cluster).await).await;
            }
        }
    )+ };
}
pub(crate) use on_both;
