//! Invites, removes, leaves and renames: reads the state, lets the domain decide, applies the decision whole or not at all.

use serde_json::json;
use uuid::Uuid;

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::archived_facts;
use crate::domain::change::{Command, Happening, decide};
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Millis, UserId};
use crate::domain::membership::{Member, Reader, Role};
use crate::domain::message::{Message, MessageKind};
use crate::domain::refusal::Refusal;
use crate::redis::commit_change::{Commit, Committed, MemberAct, Step, commit_change};
use crate::redis::read_members::{HotMembers, MembersRead, read_members};
use crate::redis::stored_form::{Audience, Change, SEQ_OWN, StoredConversation, StoredEvent, StoredMember, StoredMessage};

/// Whether a wish changed anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Changed {
    /// It did.
    Yes,
    /// Everything was so already; no event.
    No,
}

/// Who wishes.
#[derive(Clone, Copy, Debug)]
pub struct Actor<'a> {
    /// The user.
    pub user: &'a UserId,
    /// Whether it is the host application's server.
    pub service: bool,
}

impl<'a> From<&'a UserId> for Actor<'a> {
    fn from(user: &'a UserId) -> Self {
        Self { user, service: false }
    }
}

/// Carries out a wish.
///
/// # Errors
/// What [`decide`] refuses; [`Refusal::Unavailable`] when a store is away.
pub async fn change_conversation<'a>(
    stores: &Stores,
    actor: impl Into<Actor<'a>>,
    id: &ConversationId,
    command: &Command,
) -> Result<Changed, Refusal> {
    let actor = actor.into();
    let mut tries = Tries::new(stores);
    // One id for all tries: a repetition after a lost answer finds what it did.
    let request = Uuid::now_v7();
    loop {
        let obstacle = match read_members(&stores.link, &stores.keys, id, actor.user).await {
            Ok(MembersRead::Here(hot)) => match attempt(stores, actor, id, command, request, &hot).await? {
                Ok(changed) => return Ok(changed),
                Err(obstacle) => obstacle,
            },
            Ok(MembersRead::Cold) => {
                // A stranger must not be able to load conversations.
                if archived_facts(stores, Reader::caller(actor.user, actor.service), id).await?.is_none() {
                    return Err(Refusal::NotFound);
                }
                Obstacle::Cold
            }
            Ok(MembersRead::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, actor.user, obstacle, false).await?;
    }
}

async fn attempt(
    stores: &Stores,
    actor: Actor<'_>,
    id: &ConversationId,
    command: &Command,
    request: Uuid,
    hot: &HotMembers,
) -> Result<Result<Changed, Obstacle>, Refusal> {
    if !hot.head.made {
        return Err(Refusal::NotFound);
    }
    let conversation = &hot.head.conversation;
    if hot.head.last_request.as_deref() == Some(&request.to_string()) {
        return Ok(Ok(Changed::Yes));
    }
    if conversation.dissolved && hot.was_member {
        return Err(Refusal::Dissolved);
    }
    let happenings = decide(conversation, &hot.members, actor.user, actor.service, command, stores.settings.group_members_max)?;
    if happenings.is_empty() {
        return Ok(Ok(Changed::No));
    }
    let now = stores.clock.now();
    let steps = steps_of(hot, actor.user, &happenings, now);
    let commit = Commit { conversation: id.clone(), members_version: hot.head.members_version, request, steps };
    Ok(match commit_change(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &commit).await {
        Ok(Committed::Done { .. }) => Ok(Changed::Yes),
        Ok(Committed::Overloaded) => return Err(Refusal::Overloaded),
        Ok(Committed::Changed) => Err(Obstacle::Changed),
        Ok(Committed::Cold) => Err(Obstacle::Cold),
        Ok(Committed::Closed) => Err(Obstacle::Closed),
        Ok(Committed::LeaseUsedUp) => Err(Obstacle::LeaseUsedUp),
        Ok(Committed::StaleEpoch) => Err(Obstacle::StaleEpoch),
        Err(error) => Err(Obstacle::Redis(error)),
    })
}

/// One step for each happening that shows in the timeline; what follows from it goes with it.
fn steps_of(hot: &HotMembers, actor: &UserId, happenings: &[Happening], now: Millis) -> Vec<Step> {
    let conversation = &hot.head.conversation;
    let mut facts = StoredConversation {
        title: conversation.title.clone(),
        owner: conversation.owner.as_ref().map(ToString::to_string),
        pair: None,
        history: conversation.history.as_str().to_owned(),
        at: conversation.created_at,
        dissolved: conversation.dissolved,
    };
    let record = |user: &UserId| hot.members.iter().find(|m| &m.user == user);
    let mut steps: Vec<Step> = Vec::new();
    for happening in happenings {
        let mut step = Step::default();
        match happening {
            Happening::Joined(user) => {
                let data = json!({"type": "member.joined", "user_id": user.as_str(), "by": actor.as_str()});
                tell(&mut step, hot, actor, now, &data, EventType::MemberJoined, &[]);
                step.acts.push(MemberAct::Join(user.clone(), Role::Member));
                step.change.members.push(StoredMember {
                    u: user.to_string(),
                    role: Role::Member.as_str().to_owned(),
                    at: now,
                    seq: SEQ_OWN,
                    rev: 0,
                    left: None,
                });
            }
            Happening::Left(user) | Happening::Removed(user) => {
                let removed = matches!(happening, Happening::Removed(_));
                let kind = if removed { EventType::MemberRemoved } else { EventType::MemberLeft };
                let data = json!({"type": kind.as_str(), "user_id": user.as_str(), "by": actor.as_str()});
                tell(&mut step, hot, actor, now, &data, kind, std::slice::from_ref(user));
                step.acts.push(MemberAct::Leave(user.clone()));
                step.change.members.extend(record(user).map(|m| stored_member(m, m.role, Some(0))));
            }
            Happening::OwnerChanged(user) => {
                let data = json!({"type": "owner.changed", "owner": user.as_str(), "by": actor.as_str()});
                tell(&mut step, hot, actor, now, &data, EventType::OwnerChanged, &[]);
                step.acts.push(MemberAct::SetRole(user.clone(), Role::Owner));
                step.change.members.extend(record(user).map(|m| stored_member(m, Role::Owner, None)));
                step.fields.push(("owner", user.to_string()));
                facts.owner = Some(user.to_string());
                step.change.conversation = Some(facts.clone());
            }
            Happening::Renamed(title) => {
                let data = json!({"type": "conversation.renamed", "title": title, "by": actor.as_str()});
                tell(&mut step, hot, actor, now, &data, EventType::ConversationRenamed, &[]);
                step.fields.push(("title", title.clone()));
                facts.title = Some(title.clone());
                step.change.conversation = Some(facts.clone());
            }
            // Goes with the last one's leaving: nobody is left to whom a step of its own could be told.
            Happening::Dissolved => {
                facts.dissolved = true;
                facts.owner = None;
                if let Some(last) = steps.last_mut() {
                    last.fields.extend([("dissolved", "1".to_owned()), ("owner", String::new())]);
                    last.change.events.push(StoredEvent::new(
                        EventType::ConversationDissolved,
                        Audience::All,
                        Some(json!({"by": actor.as_str()})),
                    ));
                    last.change.conversation = Some(facts.clone());
                }
                continue;
            }
        }
        steps.push(step);
    }
    steps
}

/// Gives a step its timeline message and its events. Who goes gets the event alone, not the message.
fn tell(
    step: &mut Step,
    hot: &HotMembers,
    actor: &UserId,
    now: Millis,
    data: &serde_json::Value,
    kind: EventType,
    without_message: &[UserId],
) {
    let message = Message {
        data: Some(data.clone()),
        ..Message::unplaced(Uuid::now_v7(), hot.head.conversation.id.clone(), actor.clone(), MessageKind::System, now)
    };
    step.message_json = Some(StoredMessage::of(&message).to_json());
    let to = match without_message {
        [] => Audience::All,
        users => Audience::Except(users.iter().map(ToString::to_string).collect()),
    };
    let mut event_data = data.clone();
    if let Some(fields) = event_data.as_object_mut() {
        fields.remove("type");
    }
    step.change = Change {
        events: vec![StoredEvent::new(EventType::MessageCreated, to, None), StoredEvent::new(kind, Audience::All, Some(event_data))],
        ..Change::default()
    };
}

fn stored_member(member: &Member, role: Role, left: Option<u64>) -> StoredMember {
    StoredMember {
        u: member.user.to_string(),
        role: role.as_str().to_owned(),
        at: member.joined_at,
        seq: member.joined_seq,
        rev: member.joined_rev,
        left,
    }
}
