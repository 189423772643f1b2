//! Tests of the whole: servers, gateways and workers for real.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod embedded;
mod redis_link;
mod faulty_gateway;
mod load_verdict;
