//! The archive and the records: the only room that knows sqlx or a table name. Knows nothing of Redis, HTTP or the wire form.
//!
//! Every call is one unit of work (see [`connection`]): it runs to its end in a task of its own, within a deadline, and is safe to run
//! twice. SQL stands whole where it is used, with bound values; times are milliseconds, ids are compared byte by byte (`COLLATE "C"`).

pub mod archive;
pub mod audit_facts;
pub mod audit_messages;
pub mod audit_repairs;
pub mod audit_rest;
pub mod blocks;
pub mod connection;
pub mod conversations;
pub mod epochs;
pub mod erased_words;
pub mod erasures;
pub mod error;
pub mod imports;
pub mod leases;
pub mod living_leases;
pub mod media;
pub mod member_users;
pub mod message_versions;
pub mod messages;
pub mod preferences;
pub mod profiles;
pub mod push_queue;
pub mod push_subscriptions;
pub mod readers;
pub mod search;
pub mod search_queue;
pub mod server_facts;
pub mod shares;
pub mod views;
pub mod webhooks;
mod write_facts;
mod write_media;
mod write_messages;

pub use archive::{
    ArchiveBatch, BatchOutcome, Conflict, ConversationFacts, ConversationRow, KeyConflict, MemberRow, ReadRow, Source, VersionRow, VoidRow,
};
pub use blocks::BlockRow;
pub use connection::{Archive, Claim};
pub use conversations::{Reservation, StoredWhole};
pub use epochs::EpochGrant;
pub use erasures::{ClaimedErasure, ErasureStep};
pub use error::ArchiveError;
pub use imports::ChunkWritten;
pub use leases::{Lease, LeaseGrant};
pub use media::{Checked, ClaimFor, Shown};
pub use preferences::PreferencesRow;
pub use profiles::StoredProfile;
pub use push_queue::{CLAIMED_OF_HOST_MAX, ClaimedPush, HostRoom, PushLine, PushRow, WaitingHost};
pub use push_subscriptions::{PushSubscriptionRow, Registered};
pub use webhooks::WebhookRow;
