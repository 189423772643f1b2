//! Tests of the whole: servers, gateways and workers for real. One line for each file, in the order of the alphabet.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod accident;
mod archive;
mod conversations;
mod cooling;
mod dashboards;
mod deliver;
mod deploy;
mod dev;
mod embedded;
mod faulty_gateway;
mod harness;
mod house_rules;
mod http_errors;
mod identity;
mod lease_races;
mod load_balancer;
mod load_verdict;
mod metrics;
mod numbering;
mod openapi;
mod postgres_archive;
mod postgres_database;
mod postgres_faults;
mod postgres_leases;
mod postgres_model;
mod redis_link;
mod redis_link_faults;
mod scene;
mod sends;
mod settings;
mod shard_leases;
mod workers;
