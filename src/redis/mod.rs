//! The live state: the only room that knows the Redis client or a key name. One file per script, paired by name with `lua/<same>.lua`.

pub mod advance_read;
pub mod commit_change;
pub mod conversation_head;
pub mod error;
pub mod extend_lease;
pub mod find_message;
pub mod install_conversation;
pub mod keys;
pub mod link;
pub mod open_conversation;
pub mod open_epoch;
pub mod outbox;
pub mod read_conversation;
pub mod read_messages;
pub mod reply;
pub mod scripts;
pub mod send_message;
pub mod stored_form;
