//! From a user's log to the connections open here.
//!
//! The log is the buffer, a connection is a reader with a place in it, and live push is an optimisation on top: an event is pushed when it
//! follows directly on the connection's place, and in every other case the connection reads the log at its own pace. Knows the actions
//! and the logs; never Postgres, never an unbounded buffer.

mod addresses;
pub mod connection;
pub mod frames;
pub mod open_streams;
mod poll;
mod reader;
pub mod resume;
pub mod socket;
mod state;
mod sweep;
mod wakeups;

pub use connection::StreamBody;
pub use open_streams::{OpenRequest, OpenStreams, Start};
pub use poll::PollRequest;
