//! The JSON that clients rely on. Pure: serde and OpenAPI, no I/O, and no derive that is not part of the public promise.
//!
//! Requests refuse fields they do not know; answers are made from domain values and can be read back, so that the load
//! generator and the tests speak through the very same shapes.

pub mod audit;
pub mod block;
pub mod conversation;
pub mod erasure;
pub mod event;
pub mod event_data;
pub mod export;
pub mod import;
pub mod media;
pub mod message;
pub mod new_message;
pub mod openapi;
pub mod openapi_examples;
pub mod operations;
pub mod problem;
pub mod profile;
pub mod push;
pub mod search;
pub mod share;
pub mod stream;
pub mod timestamp;
pub mod typing;
