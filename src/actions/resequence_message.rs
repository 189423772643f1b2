//! Numbers a message anew when another message has its number in the archive.
//!
//! The archive is asked what it holds on that number and above the head; then one step in Redis brings that in, gives the message the next
//! number above all of it, and says so to the archive and to the members (see `lua/resequence_message.lua`). So no number that the archive
//! knows is given out again, however many there are. A reader's watermark stays where it is: what now stands below it counts as read, and
//! the message, above it, is unread once more. Answers that named the message name it on its new number.

use std::time::Duration;

use uuid::Uuid;

use super::Stores;
use super::archive_outbox::ArchiveStop;
use crate::domain::ids::{ConversationId, INTEGER_MAX, Seq, UserId};
use crate::redis::conversation_head::Head;
use crate::redis::extend_lease::extend_lease;
use crate::redis::read_conversation::{ConversationRead, read_conversation};
use crate::redis::resequence_message::{Resequence, Resequenced, resequence_message as resequence};

/// Messages that one step brings in.
const STEP: usize = 100;
/// Times that what stands in the way is cleared before the message is left aside.
const OBSTACLES_MAX: u32 = 40;
/// Pause before the next look at a conversation that takes no writes for a moment.
const PAUSE: Duration = Duration::from_millis(50);

/// A message that met another one on its number.
#[derive(Clone, Copy, Debug)]
pub struct Displaced<'a> {
    /// Where.
    pub conversation: &'a ConversationId,
    /// The number.
    pub seq: Seq,
    /// The message.
    pub id: Uuid,
    /// Whoever sent it.
    pub sender: &'a UserId,
    /// As it was accepted, as JSON.
    pub json: &'a str,
}

/// Where a message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placed {
    /// On this number, from now on.
    Moved(Seq),
    /// On this number, and did so before.
    Stands(Seq),
    /// It cannot be moved for the time: its conversation is not in Redis, or takes no writes.
    Waits,
}

/// Moves a message of a conversation that is in Redis. Repeating is safe.
///
/// # Errors
/// When a store does not answer; it may have been moved.
pub async fn resequence_message(stores: &Stores, displaced: Displaced<'_>) -> Result<Placed, ArchiveStop> {
    let (id, old_seq) = (displaced.conversation, displaced.seq);
    let mut obstacles = 0;
    while obstacles < OBSTACLES_MAX {
        let head = match read_conversation(&stores.link, &stores.keys, id, displaced.sender).await? {
            ConversationRead::Here(hot) => hot.head,
            ConversationRead::StaleEpoch | ConversationRead::Cold => return Ok(Placed::Waits),
        };
        // Asked after the lease was read: what is moved under a later lease is not moved by this call, and what was moved under an earlier
        // one is in the archive, or the conversation would not have left Redis.
        if let Some(seq) = stores.archive.seq_of(id, displaced.id, old_seq).await? {
            return Ok(Placed::Stands(seq));
        }
        let above = head.conversation.head_seq;
        let mut stands = if old_seq <= above { stores.archive.messages_at(id, &[old_seq]).await? } else { Vec::new() };
        if stands.iter().any(|message| message.id == displaced.id) {
            return Ok(Placed::Stands(old_seq));
        }
        let mut news = stores.archive.messages_after(id, above, INTEGER_MAX, STEP as u64 + 1).await?;
        let whole = news.len() <= STEP;
        news.truncate(STEP);
        stands.extend(news);
        // Nothing there any more: the message may stand where it stood. And numbers have an end.
        let Some(last) = stands.last().map(|message| message.seq).filter(|last| *last < INTEGER_MAX) else { return Ok(Placed::Waits) };
        let wanted = Resequence {
            conversation: id,
            lease_from: head.lease_from,
            old_seq,
            id: displaced.id,
            json: displaced.json,
            stands: &stands,
            whole,
        };
        match resequence(&stores.link, &stores.keys, stores.clock.now(), &wanted).await? {
            Resequenced::Moved(seq) => return Ok(Placed::Moved(seq)),
            Resequenced::Done(seq) => return Ok(Placed::Stands(seq)),
            Resequenced::Adopted => continue,
            Resequenced::StaleEpoch => return Ok(Placed::Waits),
            Resequenced::LeaseUsedUp => {
                if !reach(stores, id, &head, last).await? {
                    return Ok(Placed::Waits);
                }
            }
            Resequenced::Closed => tokio::time::sleep(PAUSE).await,
            Resequenced::Other => {}
        }
        obstacles += 1;
    }
    Ok(Placed::Waits)
}

/// Lengthens the lease so that it reaches a block beyond `last`; false when there is no such lease any more.
async fn reach(stores: &Stores, id: &ConversationId, head: &Head, last: Seq) -> Result<bool, ArchiveStop> {
    let more = stores.settings.lease_block + last.saturating_sub(head.lease_to);
    match stores.archive.extend_lease(id, head.lease_epoch, more).await? {
        Some(to) => Ok(extend_lease(&stores.link, &stores.keys, id, head.lease_epoch, to).await?),
        None => Ok(false),
    }
}
