//! Makes conversations: once, however often it is asked for.

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::Stores;
use super::change_conversation::{Actor, change_conversation};
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::view;
use crate::domain::change::Command;
use crate::domain::conversation::{ConversationView, History};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Kind, UserId};
use crate::domain::membership::{Reader, Role};
use crate::domain::refusal::{FieldError, Refusal};
use crate::postgres::Reservation;
use crate::redis::commit_change::{Commit, Committed, MemberAct, Step, commit_change};
use crate::redis::conversation_head::pair_json;
use crate::redis::stored_form::{Audience, Change, StoredConversation, StoredEvent, StoredMember};
use crate::redis::touch_index::touch_index;

/// A group that somebody wants.
#[derive(Clone, Debug)]
pub struct GroupWish {
    /// Its title.
    pub title: Option<String>,
    /// Its members beside the creator, without repetitions.
    pub members: Vec<UserId>,
    /// What new members see of the past.
    pub history: History,
    /// Makes a repetition give the same group.
    pub key: Option<String>,
}

/// A conversation, and whether this call made it.
#[derive(Clone, Debug)]
pub struct Made {
    /// As its maker sees it.
    pub view: ConversationView,
    /// `false` when it was there already.
    pub fresh: bool,
}

/// Makes a pair's conversation, or finds it.
///
/// # Errors
/// Refuses a pair of one and the same user.
pub async fn make_single(stores: &Stores, user: &UserId, peer: &UserId) -> Result<Made, Refusal> {
    let id = ConversationId::of_pair(user, peer)?;
    match view(stores, user, &id).await {
        Ok(view) => return Ok(Made { view, fresh: false }),
        Err(Refusal::NotFound) => {}
        Err(refusal) => return Err(refusal),
    }
    let (low, high) = if user.as_str().as_bytes() < peer.as_str().as_bytes() { (user, peer) } else { (peer, user) };
    let founders = [(low.clone(), Role::Member), (high.clone(), Role::Member)];
    let facts = StoredConversation {
        title: None,
        owner: None,
        pair: Some((low.to_string(), high.to_string())),
        history: History::All.as_str().to_owned(),
        at: 0,
        dissolved: false,
    };
    make(stores, user, &id, &founders, facts).await
}

/// Makes a group, or finds the one that the same key made.
///
/// # Errors
/// Names the field that cannot be accepted; [`Refusal::IdempotencyConflict`] when the key made another group.
pub async fn make_group(stores: &Stores, user: &UserId, wish: &GroupWish) -> Result<Made, Refusal> {
    let max = stores.settings.group_members_max;
    if wish.members.len() as u64 + 1 > max {
        return Err(FieldError::new("members", format!("must make a group of at most {max} members")).into());
    }
    if wish.members.contains(user) {
        return Err(FieldError::new("members", "must not name oneself").into());
    }
    let fresh = ConversationId::of_group(Uuid::now_v7());
    let id = match &wish.key {
        None => fresh,
        Some(key) => match stores.archive.reserve_group(user, key, &fingerprint(wish), fresh).await? {
            Reservation::New(id) | Reservation::Existing(id) => id,
            Reservation::Conflict => return Err(Refusal::IdempotencyConflict),
        },
    };
    if wish.key.is_some() {
        // Reserved is not made: an earlier try may have ended between the two, and making is idempotent.
        match view(stores, user, &id).await {
            Ok(view) => return Ok(Made { view, fresh: false }),
            Err(Refusal::NotFound) => {}
            Err(refusal) => return Err(refusal),
        }
    }
    let mut founders = vec![(user.clone(), Role::Owner)];
    founders.extend(wish.members.iter().map(|member| (member.clone(), Role::Member)));
    let facts = StoredConversation {
        title: wish.title.clone(),
        owner: Some(user.to_string()),
        pair: None,
        history: wish.history.as_str().to_owned(),
        at: 0,
        dissolved: false,
    };
    make(stores, user, &id, &founders, facts).await
}

/// Makes a system conversation, or finds the one that was made for its key; whoever is named and does not belong to it yet then joins.
/// Nobody is removed, and a title is only taken when it is made. `service` is the `sub` of the host application's server.
///
/// # Errors
/// Names `members` when they would be too many.
pub async fn make_system(
    stores: &Stores,
    service: &UserId,
    id: &ConversationId,
    title: Option<String>,
    members: &[UserId],
) -> Result<Made, Refusal> {
    let max = stores.settings.group_members_max;
    if members.len() as u64 > max {
        return Err(FieldError::new("members", format!("must be at most {max} users")).into());
    }
    let reader = Reader::caller(service, true);
    if let Err(refusal) = view(stores, reader, id).await {
        if refusal != Refusal::NotFound {
            return Err(refusal);
        }
        let founders: Vec<(UserId, Role)> = members.iter().map(|member| (member.clone(), Role::Member)).collect();
        let history = History::All.as_str().to_owned();
        let facts = StoredConversation { title, owner: None, pair: None, history, at: 0, dissolved: false };
        let made = make(stores, service, id, &founders, facts).await?;
        if made.fresh {
            return Ok(made);
        }
    }
    let command = Command::InviteAll(members.to_vec());
    change_conversation(stores, Actor { user: service, service: true }, id, &command).await?;
    Ok(Made { view: view(stores, reader, id).await?, fresh: false })
}

/// Makes the group that an import goes into, with `owner` as its owner, or finds the one that the same key of the host application's
/// server made before, whatever has become of it.
///
/// # Errors
/// Names the field that cannot be accepted.
pub async fn make_imported_group(stores: &Stores, service: &UserId, owner: &UserId, wish: &GroupWish) -> Result<ConversationId, Refusal> {
    let max = stores.settings.group_members_max;
    if wish.members.len() as u64 + 1 > max {
        return Err(FieldError::new("conversation.members", format!("must make a group of at most {max} members")).into());
    }
    let fresh = ConversationId::of_group(Uuid::now_v7());
    let key = wish.key.as_deref().unwrap_or_default();
    let id = match stores.archive.reserve_group(service, key, "import", fresh).await? {
        Reservation::New(id) | Reservation::Existing(id) => id,
        Reservation::Conflict => return Err(Refusal::IdempotencyConflict),
    };
    if stores.archive.conversation_exists(&id).await? {
        return Ok(id);
    }
    let mut founders = vec![(owner.clone(), Role::Owner)];
    founders.extend(wish.members.iter().map(|member| (member.clone(), Role::Member)));
    let facts = StoredConversation {
        title: wish.title.clone(),
        owner: Some(owner.to_string()),
        pair: None,
        history: wish.history.as_str().to_owned(),
        at: 0,
        dissolved: false,
    };
    match make(stores, owner, &id, &founders, facts).await {
        // Not found: somebody else made it, and the owner has left it since.
        Ok(_) | Err(Refusal::NotFound) => Ok(id),
        Err(refusal) => Err(refusal),
    }
}

async fn make(
    stores: &Stores,
    user: &UserId,
    id: &ConversationId,
    founders: &[(UserId, Role)],
    mut facts: StoredConversation,
) -> Result<Made, Refusal> {
    let mut tries = Tries::new(stores);
    let request = Uuid::now_v7();
    let now = stores.clock.now();
    facts.at = now;
    let mut fields = vec![("history", facts.history.clone()), ("created_at", now.to_string())];
    fields.extend(facts.title.iter().map(|title| ("title", title.clone())));
    fields.extend(facts.owner.iter().map(|owner| ("owner", owner.clone())));
    if let [(low, _), (high, _)] = founders
        && facts.pair.is_some()
    {
        fields.push(("pair", pair_json(low, high)));
    }
    let stored = |(user, role): &(UserId, Role)| StoredMember {
        u: user.to_string(),
        role: role.as_str().to_owned(),
        at: now,
        seq: 0,
        rev: 0,
        left: None,
    };
    let change = Change {
        events: vec![StoredEvent::new(EventType::ConversationCreated, Audience::All, None)],
        conversation: Some(facts),
        members: founders.iter().map(stored).collect(),
        ..Change::default()
    };
    let acts = founders.iter().map(|(user, role)| MemberAct::Join(user.clone(), *role)).collect();
    let step = Step { message_json: None, change, fields, acts };
    let commit = Commit { conversation: id.clone(), members_version: 0, request, steps: vec![step] };
    let fresh = loop {
        let obstacle = match commit_change(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &commit).await {
            Ok(Committed::Done { .. }) => break true,
            // Version 0 is a shell: anything else has been made by somebody else meanwhile.
            Ok(Committed::Changed) => break false,
            Ok(Committed::Overloaded) => return Err(Refusal::Overloaded),
            Ok(Committed::Cold) => Obstacle::Cold,
            Ok(Committed::Closed) => Obstacle::Closed,
            Ok(Committed::LeaseUsedUp) => Obstacle::LeaseUsedUp,
            Ok(Committed::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, user, obstacle, true).await?;
    };
    let service = id.kind() == Kind::System;
    if !service {
        // The maker's list holds the conversation before the answer, so that it stands in any list read after it.
        touch_index(&stores.link, &stores.keys, user, &[(id.clone(), now)], false).await?;
    }
    Ok(Made { view: view(stores, Reader::caller(user, service), id).await?, fresh })
}

/// What is compared when the key comes again; members in any order.
fn fingerprint(wish: &GroupWish) -> String {
    let mut members: Vec<&str> = wish.members.iter().map(UserId::as_str).collect();
    members.sort_unstable();
    let mut hash = Sha256::new();
    for part in [wish.title.as_deref().unwrap_or(""), wish.history.as_str()].into_iter().chain(members) {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex::encode(&hash.finalize()[..16])
}
