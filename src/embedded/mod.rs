//! Private servers: a Redis and a Postgres of our own, started as child processes for `seqline dev` and for the tests.
//!
//! What holds here: servers listen on loopback only, on ports that were free, with random passwords, each in a folder of its own; they
//! end when we end, also when we are killed (see `process`); what an earlier, killed run left behind is cleared when its folder is used
//! again and never anything else. This room knows programs, folders, ports and processes. It must not know keys, tables, SQL or the product.

mod error;
mod folder;
mod leftover;
mod ports;
mod postgres_server;
mod process;
mod programs;
mod redis_cluster;
mod redis_server;
mod redis_wire;

pub use error::EmbeddedError;
pub use folder::{DataFolder, TempFolder, random_word, write_private};
pub use leftover::clear;
pub use ports::{free_port, port_from};
pub use postgres_server::{PostgresOptions, PostgresServer};
pub use process::{Guarded, GuardedCommand};
pub use redis_cluster::RedisCluster;
pub use redis_server::{RedisOptions, RedisServer};
pub use redis_wire::{Wire, WireReply};
