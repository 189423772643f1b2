//! Sets what a member wants for oneself: reads, lets the domain decide, puts the decision in the place of what it was made on.
//!
//! A try whose answer was lost finds, when it reads again, that nothing is left to change.

use serde_json::json;

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::{hot, views_of_cold};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Rev, UserId};
use crate::domain::preferences::{PreferencesWish, ShownPreferences};
use crate::domain::refusal::Refusal;
use crate::redis::read_conversation::HotConversation;
use crate::redis::set_preferences::{BlockChange, PreferencesChange, PreferencesSet, set_preferences as commit};
use crate::redis::stored_form::{Audience, Change, StoredBlock, StoredEvent, StoredPreferences};

/// Sets preferences.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, [`Refusal::Unavailable`] when a store is away.
pub async fn set_preferences(stores: &Stores, user: &UserId, id: &ConversationId, wish: &PreferencesWish) -> Result<(), Refusal> {
    let mut tries = Tries::new(stores);
    loop {
        let obstacle = match hot(stores, user, id).await? {
            Some(hot) => match apply(stores, user, id, &hot, wish, None).await? {
                Applied::Done(_) | Applied::Unchanged => return Ok(()),
                Applied::Obstacle(obstacle) => obstacle,
            },
            None => {
                // A stranger must not be able to load conversations.
                if views_of_cold(stores, user, std::slice::from_ref(id)).await?.is_empty() {
                    return Err(Refusal::NotFound);
                }
                Obstacle::Cold
            }
        };
        tries.clear(stores, id, user, obstacle, false).await?;
    }
}

/// What became of one try.
pub(super) enum Applied {
    /// The conversation's rev now.
    Done(Rev),
    /// Everything was so already.
    Unchanged,
    /// Read again, after clearing this.
    Obstacle(Obstacle),
}

/// A block to set or lift, and as the archive keeps it.
pub(super) type BlockStep = (BlockChange, StoredBlock);

/// One try.
pub(super) async fn apply(
    stores: &Stores,
    user: &UserId,
    id: &ConversationId,
    hot: &HotConversation,
    wish: &PreferencesWish,
    block: Option<BlockStep>,
) -> Result<Applied, Refusal> {
    let member = hot.member.as_ref().filter(|_| hot.head.made).ok_or(Refusal::NotFound)?;
    let head = hot.head.conversation.head_seq;
    let read_seq = hot.mark.map_or(0, |(seq, _)| seq);
    let preferences = match member.preferences.changed(wish, head, read_seq) {
        Some(changed) => changed,
        None if block.is_some() => member.preferences.settled(head, read_seq),
        None => return Ok(Applied::Unchanged),
    };
    let blocked = block.as_ref().map(|(change, _)| change.after.is_some());
    let change = Change {
        events: vec![StoredEvent::new(
            EventType::PreferencesChanged,
            Audience::Only(vec![user.to_string()]),
            Some(event_data(preferences.shown(head, read_seq), blocked)),
        )],
        preferences: Some(StoredPreferences {
            u: user.to_string(),
            joined: member.joined_rev,
            m: preferences.muted,
            p: preferences.pinned,
            h: preferences.hidden_to,
            k: preferences.marked_at,
            c: preferences.cleared_to,
        }),
        block: block.as_ref().map(|(_, stored)| stored.clone()),
        ..Change::default()
    };
    let wanted =
        PreferencesChange { conversation: id, member, head, read_seq, preferences, block: block.map(|(change, _)| change), change };
    let outcome = commit(&stores.link, &stores.keys, stores.clock.now(), stores.settings.outbox_max_entries, &wanted).await;
    Ok(match outcome {
        Ok(PreferencesSet::Done { rev }) => Applied::Done(rev),
        Ok(PreferencesSet::NotMember) => return Err(Refusal::NotFound),
        Ok(PreferencesSet::Overloaded) => return Err(Refusal::Overloaded),
        Ok(PreferencesSet::Changed) => Applied::Obstacle(Obstacle::Changed),
        Ok(PreferencesSet::Cold) => Applied::Obstacle(Obstacle::Cold),
        Ok(PreferencesSet::Closed) => Applied::Obstacle(Obstacle::Closed),
        Ok(PreferencesSet::StaleEpoch) => Applied::Obstacle(Obstacle::StaleEpoch),
        Err(error) => Applied::Obstacle(Obstacle::Redis(error)),
    })
}

/// What one's own devices are told: all preferences as they show, and of a block when it is about one.
pub(super) fn event_data(shown: ShownPreferences, blocked: Option<bool>) -> serde_json::Value {
    let mut data = json!({
        "muted": shown.muted,
        "pinned": shown.pinned,
        "hidden": shown.hidden,
        "marked_unread": shown.marked_unread,
        "cleared_to": shown.cleared_to,
    });
    if let (Some(blocked), Some(fields)) = (blocked, data.as_object_mut()) {
        fields.insert("blocked".to_owned(), blocked.into());
    }
    data
}
