//! Reads a picture: its owner, and whoever can see a message that shows it now.
//!
//! What a reader can see is decided where messages are read ([`messages_for`], [`page`]): one rule for history, membership and deletion. The
//! archive only says where to look. A message that it does not have yet is among the newest of its conversation, in Redis.

use std::ops::Range;

use uuid::Uuid;

use super::Stores;
use super::read_messages::{Place, Visible, messages_for, page};
use crate::domain::ids::{ConversationId, Millis, UserId};
use crate::domain::media::Media;
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::media::{ObjectError, ObjectRead};
use crate::postgres::Shown;

/// Places that are looked at for one reader.
const PLACES_MAX: u64 = 64;
/// Messages read at a time, and how often, while the archive does not have the message yet.
const PAGE: usize = 200;
const PAGES_MAX: usize = 10;
/// How far the clocks of two gateways may be apart, in milliseconds: no message that was made longer before a claim is looked at for it.
const CLOCKS_APART_MS: Millis = 300_000;

/// Finds a picture that a reader may see.
///
/// # Errors
/// [`Refusal::NotFound`] when there is none for this reader; [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn find_media(stores: &Stores, reader: &UserId, id: Uuid) -> Result<Media, Refusal> {
    stores.media()?;
    let media = stores.archive.ready_media(id).await?.ok_or(Refusal::NotFound)?;
    if media.owner == *reader {
        return Ok(media);
    }
    // Twice, when the first look may have fallen between the window and the archive.
    for _ in 0..2 {
        let mut claimed = false;
        for place in stores.archive.media_shown(id, reader, stores.clock.now(), PLACES_MAX).await? {
            let seen = match place {
                Shown::On(conversation, seqs) => match messages_for(stores, reader, &conversation, &seqs).await? {
                    Visible::Messages(messages) => messages.iter().any(|message| shows(message, id)),
                    Visible::NotMember => false,
                },
                Shown::Claimed(conversation, since) => {
                    claimed = true;
                    shown_lately(stores, reader, &conversation, id, since.saturating_sub(CLOCKS_APART_MS)).await?
                }
            };
            if seen {
                return Ok(media);
            }
        }
        if !claimed {
            break;
        }
    }
    Err(Refusal::NotFound)
}

/// Whether a message that the archive may not have yet shows it, made after `since`.
async fn shown_lately(stores: &Stores, reader: &UserId, conversation: &ConversationId, id: Uuid, since: Millis) -> Result<bool, Refusal> {
    let mut place = Place::Latest;
    for _ in 0..PAGES_MAX {
        let page = match page(stores, reader, conversation, place, PAGE).await {
            Ok(page) => page,
            Err(Refusal::NotFound) => return Ok(false),
            Err(refusal) => return Err(refusal),
        };
        if page.messages.iter().any(|message| shows(message, id)) {
            return Ok(true);
        }
        match page.messages.first().filter(|first| page.has_more_before && first.created_at >= since) {
            Some(first) => place = Place::Before(first.seq),
            None => return Ok(false),
        }
    }
    Err(Refusal::Unavailable("the archive is too far behind to tell"))
}

fn shows(message: &Message, id: Uuid) -> bool {
    message.deleted_at.is_none() && message.media.iter().any(|item| item.id == id)
}

/// Begins to read a picture's bytes, or a part of them.
///
/// # Errors
/// [`Refusal::Unavailable`] when they cannot be reached.
pub async fn read_media(stores: &Stores, media: &Media, range: Option<Range<u64>>) -> Result<ObjectRead, Refusal> {
    match stores.media()?.objects.read(media.id, range).await {
        // Swept while it was looked up.
        Err(ObjectError::Missing) if stores.archive.ready_media(media.id).await?.is_none() => Err(Refusal::NotFound),
        read => Ok(read?),
    }
}
