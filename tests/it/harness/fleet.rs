//! A fleet: a Redis and a database of its own, and gateways and workers on them.

/// Shards of conversations in tests: several to each owner, few to wait for.
pub const SHARDS: u16 = 8;
/// Partitions of users in tests.
pub const PARTITIONS: u16 = 16;
