//! Moves one's own read watermark forward.

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::{hot, views_of_cold};
use super::set_preferences::set_preferences;
use crate::domain::conversation::Unread;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::preferences::PreferencesWish;
use crate::domain::read_mark::unread;
use crate::domain::refusal::Refusal;
use crate::redis::advance_read::{AdvanceRead, Advanced, advance_read};

/// Where a watermark stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadPosition {
    /// The last seq read.
    pub read_seq: Seq,
    /// When it last moved; `None` when it never did.
    pub read_at: Option<Millis>,
    /// What is left.
    pub unread: Unread,
}

/// Moves the watermark to `min(seq, head)` if that is further; an older seq moves nothing. Either way the
/// conversation is not marked as unread any more. `time_text` writes a time for the event.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member.
pub async fn mark_read(
    stores: &Stores,
    user: &UserId,
    id: &ConversationId,
    seq: Seq,
    time_text: fn(Millis) -> String,
) -> Result<ReadPosition, Refusal> {
    let advance = AdvanceRead { conversation: id.clone(), user: user.clone(), seq, members_max: stores.settings.read_events_members_max };
    let mut tries = Tries::new(stores);
    loop {
        let now = stores.clock.now();
        let outcome = advance_read(&stores.link, &stores.keys, now, &time_text(now), stores.settings.outbox_max_entries, &advance).await;
        let obstacle = match outcome {
            Ok(Advanced::Mark(mark)) => {
                // A watermark that moves takes the mark away by itself; one that has nowhere to go says no less that this was read.
                if !mark.moved && mark.member.preferences.shown(mark.head_seq, mark.read_seq).marked_unread {
                    let wish = PreferencesWish { marked_unread: Some(false), ..PreferencesWish::default() };
                    set_preferences(stores, user, id, &wish).await?;
                }
                let seen_to = mark.read_seq.max(mark.member.preferences.cleared_to);
                return Ok(ReadPosition {
                    read_seq: mark.read_seq,
                    read_at: (mark.read_at > 0).then_some(mark.read_at),
                    unread: unread(mark.head_seq, seen_to, mark.uncounted, &mark.voids, stores.settings.unread_max),
                });
            }
            Ok(Advanced::NotMember) => return Err(Refusal::NotFound),
            Ok(Advanced::Overloaded) => return Err(Refusal::Overloaded),
            Ok(Advanced::Cold) => {
                // A stranger must not be able to load conversations.
                if hot(stores, user, id).await?.is_none() && views_of_cold(stores, user, std::slice::from_ref(id)).await?.is_empty() {
                    return Err(Refusal::NotFound);
                }
                Obstacle::Cold
            }
            Ok(Advanced::Closed) => Obstacle::Closed,
            Ok(Advanced::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, user, obstacle, false).await?;
    }
}
