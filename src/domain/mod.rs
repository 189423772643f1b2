//! What a conversation is: names, numbers, rules. Pure: no I/O, no async, no clock, no status code.

pub mod assign_seq;
pub mod audit;
pub mod block;
pub mod change;
pub mod conversation;
pub mod erasure;
pub mod event;
pub mod ids;
pub mod import;
pub mod media;
pub mod membership;
pub mod message;
pub mod message_change;
pub mod permission;
pub mod position;
pub mod preferences;
pub mod profile;
pub mod quote;
pub mod rate_limit;
pub mod reaction;
pub mod read_mark;
pub mod refusal;
pub mod search_terms;
pub mod share;
