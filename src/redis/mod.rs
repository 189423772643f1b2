//! The live state: the only room that knows the Redis client or a key name. One file per script, paired by name with `lua/<same>.lua`.

pub mod error;
pub mod keys;
pub mod link;
pub mod outbox;
pub mod reply;
pub mod scripts;
pub mod stored_form;
