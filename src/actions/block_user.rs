//! Blocks another user, and lifts it: a flag on the pair's conversation, which is made by it if it is new.
//!
//! A conversation that a block alone has made is told to nobody but the blocker's own devices, and is in nobody's list before there is a
//! message in it. A try whose answer was lost finds the flag as it wants it.

use uuid::Uuid;

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::hot;
use super::set_preferences::{Applied, BlockStep, apply, event_data};
use crate::domain::conversation::History;
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Millis, Rev, UserId};
use crate::domain::membership::Role;
use crate::domain::preferences::{PreferencesWish, ShownPreferences};
use crate::domain::refusal::{FieldError, Refusal};
use crate::postgres::BlockRow;
use crate::redis::commit_change::{Commit, Committed, MemberAct, Step, commit_change};
use crate::redis::conversation_head::{BLOCK_FIELDS, pair_json};
use crate::redis::set_preferences::BlockChange;
use crate::redis::stored_form::{Audience, Change, StoredBlock, StoredConversation, StoredEvent, StoredMember};

/// Blocks `other`; says since when.
///
/// # Errors
/// Names `user_id` for who would block oneself; [`Refusal::Unavailable`] when a store is away.
pub async fn block_user(stores: &Stores, user: &UserId, other: &UserId) -> Result<Millis, Refusal> {
    let id = pair_id(user, other)?;
    let mut tries = Tries::new(stores);
    let request = Uuid::now_v7();
    let now = stores.clock.now();
    loop {
        let is_made = match hot(stores, user, &id).await? {
            Some(hot) if hot.head.made => Some(Some(hot)),
            Some(_) => None,
            None => stores.archive.membership(&id, user).await?.map(|_| None),
        };
        let obstacle = match is_made {
            Some(Some(hot)) => {
                if let Some(since) = hot.head.conversation.blocked_by(user) {
                    return Ok(since);
                }
                let step = step(user, other, None, Some(now));
                match apply(stores, user, &id, &hot, &PreferencesWish::default(), Some(step)).await? {
                    Applied::Done(rev) => {
                        list_at_once(stores, user, other, &id, Some(now), rev).await;
                        return Ok(now);
                    }
                    Applied::Unchanged => return Ok(now),
                    Applied::Obstacle(obstacle) => obstacle,
                }
            }
            Some(None) => Obstacle::Cold,
            None => match make(stores, user, other, &id, request, now).await? {
                Ok(rev) => {
                    list_at_once(stores, user, other, &id, Some(now), rev).await;
                    return Ok(now);
                }
                Err(obstacle) => obstacle,
            },
        };
        tries.clear(stores, &id, user, obstacle, true).await?;
    }
}

/// Lifts one's own block of `other`, if there is one.
///
/// # Errors
/// As [`block_user`].
pub async fn unblock_user(stores: &Stores, user: &UserId, other: &UserId) -> Result<(), Refusal> {
    let id = pair_id(user, other)?;
    let mut tries = Tries::new(stores);
    loop {
        let obstacle = match hot(stores, user, &id).await? {
            Some(hot) => {
                let Some(since) = hot.head.conversation.blocked_by(user) else { return Ok(()) };
                let step = step(user, other, Some(since), None);
                match apply(stores, user, &id, &hot, &PreferencesWish::default(), Some(step)).await? {
                    Applied::Done(rev) => {
                        list_at_once(stores, user, other, &id, None, rev).await;
                        return Ok(());
                    }
                    Applied::Unchanged => return Ok(()),
                    Applied::Obstacle(obstacle) => obstacle,
                }
            }
            None => match stores.archive.membership(&id, user).await? {
                Some((conversation, _)) if conversation.blocked_by(user).is_some() => Obstacle::Cold,
                _ => return Ok(()),
            },
        };
        tries.clear(stores, &id, user, obstacle, false).await?;
    }
}

/// Whom a user blocks and since when, by user id, up to `limit` after `after`, and whether there are more.
///
/// # Errors
/// [`Refusal::Unavailable`] when Postgres is away.
pub async fn list_blocks(
    stores: &Stores,
    user: &UserId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Vec<(UserId, Millis)>, bool), Refusal> {
    let mut blocks = stores.archive.blocks_page(user, after, u64::try_from(limit + 1).unwrap_or(u64::MAX)).await?;
    let more = blocks.len() > limit;
    blocks.truncate(limit);
    Ok((blocks, more))
}

fn pair_id(user: &UserId, other: &UserId) -> Result<ConversationId, Refusal> {
    ConversationId::of_pair(user, other).map_err(|error| FieldError { field: "user_id".into(), ..error }.into())
}

fn step(user: &UserId, other: &UserId, before: Option<Millis>, after: Option<Millis>) -> BlockStep {
    (BlockChange { field: field_of(user, other), before, after }, StoredBlock { by: user.to_string(), of: other.to_string(), since: after })
}

fn field_of(user: &UserId, other: &UserId) -> &'static str {
    if user.as_str().as_bytes() < other.as_str().as_bytes() { BLOCK_FIELDS.0 } else { BLOCK_FIELDS.1 }
}

/// Makes the conversation together with the block; nobody else is told.
async fn make(
    stores: &Stores,
    user: &UserId,
    other: &UserId,
    id: &ConversationId,
    request: Uuid,
    now: Millis,
) -> Result<Result<Rev, Obstacle>, Refusal> {
    let (low, high) = if user.as_str().as_bytes() < other.as_str().as_bytes() { (user, other) } else { (other, user) };
    let history = History::All.as_str().to_owned();
    let (_, block) = step(user, other, None, Some(now));
    let founder = |user: &UserId| StoredMember { u: user.to_string(), role: "member".into(), at: now, seq: 0, rev: 0, left: None };
    let step = Step {
        message_json: None,
        change: Change {
            events: vec![StoredEvent::new(
                EventType::PreferencesChanged,
                Audience::Only(vec![user.to_string()]),
                Some(event_data(ShownPreferences::default(), Some(true))),
            )],
            conversation: Some(StoredConversation {
                title: None,
                owner: None,
                pair: Some((low.to_string(), high.to_string())),
                history: history.clone(),
                at: now,
                dissolved: false,
            }),
            members: vec![founder(low), founder(high)],
            block: Some(block),
            ..Change::default()
        },
        fields: vec![
            ("history", history),
            ("created_at", now.to_string()),
            ("pair", pair_json(low, high)),
            (field_of(user, other), now.to_string()),
        ],
        acts: [low, high].map(|user| MemberAct::Join(user.clone(), Role::Member)).into(),
    };
    // Version 0 is a shell: anything else has been made by somebody else meanwhile.
    let commit = Commit { conversation: id.clone(), members_version: 0, request, steps: vec![step] };
    Ok(match commit_change(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &commit).await {
        Ok(Committed::Done { rev, .. }) => Ok(rev),
        Ok(Committed::Overloaded) => return Err(Refusal::Overloaded),
        Ok(Committed::Changed) => Err(Obstacle::Changed),
        Ok(Committed::Cold) => Err(Obstacle::Cold),
        Ok(Committed::Closed) => Err(Obstacle::Closed),
        Ok(Committed::LeaseUsedUp) => Err(Obstacle::LeaseUsedUp),
        Ok(Committed::StaleEpoch) => Err(Obstacle::StaleEpoch),
        Err(error) => Err(Obstacle::Redis(error)),
    })
}

/// The blocker's list holds it before the answer. If it cannot be written the block stands all the same, and the archive writes it.
async fn list_at_once(stores: &Stores, user: &UserId, other: &UserId, id: &ConversationId, since: Option<Millis>, rev: Rev) {
    let row = BlockRow { blocker: user.clone(), blocked: other.clone(), conv: id.clone(), since, rev };
    if let Err(error) = stores.archive.write_block(&row).await {
        tracing::warn!(%error, "a block is not in its maker's list yet");
    }
}
