//! A user's log: one Redis Stream of small pointers, and a hash that says which log it is.
//!
//! ```text
//! log:{u7}:ann       1764500000000-0   p = "m single:5f0c… 4294967299 3 1764500000000"
//!                    1764500000000-1   p = "ra single:5f0c… 4294967300 3 1764500000000"   d = {"user_id":"bob","read_seq":3,…}
//! loginfo:{u7}:ann   nonce = 9f3b61c0…   last = 1764500000000-1   trimmed = 0-0   g:gw-2 = 1764500600000
//! ```
//!
//! Entry ids are given by the script that appends: the caller's clock, or the last entry's millisecond and the next counter when the clock
//! stands still or runs behind. `trimmed` is the last entry that was dropped: whoever stands before it has missed something. The epoch of
//! a log is made of its birth `nonce`, the server's live `master_replid` and the log's own key, so that a log that was lost and began
//! again, a log that went back with its server, and another user's log are three other logs.

use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis};
use crate::domain::position::{EntryId, Position};

use super::reply::Items;
use super::stored_form::Unreadable;

/// How much of a user's log is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBounds {
    /// Entries; a log may hold 64 more before it is cut.
    pub entries_max: u64,
    /// Age in milliseconds.
    pub age_max_ms: u64,
}

/// Which log it is and what it holds, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogState {
    /// Which log it is.
    pub epoch: String,
    /// Its last entry, `0-0` while it has none.
    pub last: EntryId,
    /// The last entry that was dropped, `0-0` for none.
    pub trimmed: EntryId,
}

impl LogState {
    /// The end of the log as a position.
    #[must_use]
    pub fn head(&self) -> Position {
        Position { epoch: Some(self.epoch.clone()), entry: self.last }
    }

    /// Reads epoch, last and trimmed, in this order.
    pub(super) fn read(items: &mut Items<'_>) -> Result<Self, Unreadable> {
        Ok(Self { epoch: items.str()?.to_owned(), last: entry_id(items.str()?)?, trimmed: entry_id(items.str()?)? })
    }
}

/// One entry of a log.
#[derive(Clone, Debug, PartialEq)]
pub struct LogEntry {
    /// Its place.
    pub id: EntryId,
    /// What it points to; `None` for an entry that this build cannot read, which is passed over.
    pub pointer: Option<Pointer>,
}

/// Writes a pointer without its facts: `<type code> <conversation> <rev> <seq> <at>`.
#[must_use]
pub fn pointer_text(pointer: &Pointer) -> String {
    format!("{} {} {} {} {}", pointer.kind.code(), pointer.conversation, pointer.rev, pointer.seq, pointer.at)
}

/// Reads a pointer.
///
/// # Errors
/// When it is not in the form that [`pointer_text`] writes.
pub fn parse_pointer(text: &str, data: Option<String>) -> Result<Pointer, Unreadable> {
    let mut parts = text.split(' ');
    let kind = parts.next().and_then(EventType::of_code).ok_or(Unreadable("pointer type"))?;
    let conversation = parts.next().and_then(ConversationId::parse).ok_or(Unreadable("pointer conversation"))?;
    let rev = parts.next().and_then(|t| t.parse().ok()).ok_or(Unreadable("pointer rev"))?;
    let seq = parts.next().and_then(|t| t.parse().ok()).ok_or(Unreadable("pointer seq"))?;
    let at: Millis = parts.next().and_then(|t| t.parse().ok()).ok_or(Unreadable("pointer time"))?;
    Ok(Pointer { kind, conversation, rev, seq, at, data })
}

/// A nonce for a log that may be born in the next call.
pub(super) fn fresh_nonce() -> String {
    format!("{:032x}", rand::random::<u128>())
}

/// The field of a user's log info that says until when a gateway wants wake-ups.
pub(super) fn gateway_field(gateway: &str) -> String {
    format!("g:{gateway}")
}

/// Reads an entry id out of a reply.
pub(super) fn entry_id(text: &str) -> Result<EntryId, Unreadable> {
    EntryId::parse(text).ok_or(Unreadable("entry id"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_reads_as_it_was_written() {
        let conversation = ConversationId::parse("system:order:1").unwrap();
        for kind in EventType::ALL.iter().copied().filter(|kind| kind.is_kept()) {
            let pointer =
                Pointer { kind, conversation: conversation.clone(), rev: (1 << 53) - 1, seq: 99_999_999_999_999, at: -1, data: None };
            assert_eq!(parse_pointer(&pointer_text(&pointer), None), Ok(pointer));
        }
        for text in ["", "m", "m system:order:1 1 1", "zz system:order:1 1 1 1", "m nowhere 1 1 1", "m system:order:1 x 1 1"] {
            assert!(parse_pointer(text, None).is_err(), "{text}");
        }
    }
}
