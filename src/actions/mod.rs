//! What the product does, one file per verb: knows stores and domain; no HTTP, no Redis commands, no SQL.

pub mod ack_events;
pub mod announce_loss;
pub mod archive_outbox;
pub mod archive_rows;
pub mod ask_hook;
pub mod change_conversation;
pub mod change_message;
pub mod clear_obstacle;
pub mod find_message;
pub mod limit_rate;
pub mod list_conversations;
pub mod list_members;
pub mod make_conversation;
pub mod mark_read;
pub mod name_conversations;
pub mod note_claims;
pub mod open_epoch;
pub mod read_conversation;
pub mod read_events;
pub mod read_messages;
pub mod read_profiles;
pub mod read_versions;
pub mod search_messages;
pub mod send_lanes;
pub mod send_message;
pub mod set_profile;
pub(crate) mod short_memory;
pub mod show_messages;
pub mod show_typing;
pub mod stores;
pub mod tell_streams;
pub mod tickets;
pub mod warm_conversation;
pub mod webhook_rows;

pub use stores::Stores;
