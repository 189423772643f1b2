//! Edits, recalls and deletes messages, and puts reactions on them: reads the message, lets the domain decide, applies the decision whole
//! or not at all.
//!
//! A try whose answer was lost is not told apart by an id of its own: the message is read again, and what it says then shows whether the
//! wish was fulfilled.

use std::time::Instant;

use serde_json::json;
use uuid::Uuid;

use super::Stores;
use super::ask_hook::{is_asked, may_edit};
use super::claim_media::claim_media;
use super::clear_obstacle::{Obstacle, Tries};
use crate::domain::conversation::History;
use crate::domain::event::EventType;
use crate::domain::ids::{ConversationId, Kind, Millis, Seq, UserId};
use crate::domain::message::{MediaItem, Message, MessageKind};
use crate::domain::message_change::{Asker, MessageCommand, Turn, Windows, check_placeholders, decide};
use crate::domain::refusal::Refusal;
use crate::postgres::ClaimFor;
use crate::redis::change_message::{MessageChange, MessageChanged, change_message as commit};
use crate::redis::read_messages::{HotMessages, MessagesRead, Which, read_messages};
use crate::redis::stored_form::{Audience, Change, StoredEvent, StoredVersion};

/// A wish about one message.
#[derive(Clone, Debug)]
pub struct ChangeRequest {
    /// Who asks.
    pub user: UserId,
    /// Whether they are the host application's server.
    pub service: bool,
    /// Whether they are a moderator.
    pub admin: bool,
    /// Where.
    pub conversation: ConversationId,
    /// Which message.
    pub seq: Seq,
    /// What; pictures of an edit stand in `pictures`.
    pub command: MessageCommand,
    /// The pictures that an edit names.
    pub pictures: Option<Vec<Uuid>>,
}

/// Carries out a wish; gives the message as it is then.
///
/// # Errors
/// What [`decide`] refuses; [`Refusal::NotFound`] for who is no member or may not see the message; [`Refusal::Unavailable`] when a store
/// is away.
pub async fn change_message(stores: &Stores, request: &ChangeRequest) -> Result<Message, Refusal> {
    let id = &request.conversation;
    let mut tries = Tries::new(stores);
    // Moderators take messages down, and the host's server tends to its own conversations, without being members.
    let needs_no_membership = match request.command {
        MessageCommand::Delete if request.admin => true,
        MessageCommand::Edit { .. } | MessageCommand::Delete => request.service && id.kind() == Kind::System,
        MessageCommand::React { .. } => false,
    };
    let mut asked = !is_asked(stores, request.service);
    let reader = (!needs_no_membership).then_some(&request.user);
    loop {
        let obstacle = match read_messages(&stores.link, &stores.keys, id, reader, &Which::At(vec![request.seq]), 1).await {
            Ok(MessagesRead::Here(hot)) => match attempt(stores, request, needs_no_membership, *hot, &mut asked, tries.until()).await? {
                Ok(message) => return Ok(message),
                Err(obstacle) => obstacle,
            },
            Ok(MessagesRead::Cold) => {
                // A stranger must not be able to load conversations.
                if !needs_no_membership && stores.archive.membership(id, &request.user).await?.is_none() {
                    return Err(Refusal::NotFound);
                }
                Obstacle::Cold
            }
            Ok(MessagesRead::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, &request.user, obstacle, false).await?;
    }
}

async fn attempt(
    stores: &Stores,
    request: &ChangeRequest,
    needs_no_membership: bool,
    hot: HotMessages,
    asked: &mut bool,
    until: Instant,
) -> Result<Result<Message, Obstacle>, Refusal> {
    let conversation = &hot.head.conversation;
    if !hot.head.made || (hot.member.is_none() && !needs_no_membership) {
        return Err(Refusal::NotFound);
    }
    let lowest = hot.member.as_ref().map_or(1, |member| member.first_visible_seq(conversation));
    let void = conversation.voids.iter().any(|(from, to)| (*from..=*to).contains(&request.seq));
    if request.seq < lowest || request.seq > conversation.head_seq || void {
        return Err(Refusal::NotFound);
    }
    let message = match hot.messages.into_iter().next() {
        Some(message) => message,
        // What has left the window is archived.
        None => stores.archive.messages_at(&request.conversation, &[request.seq]).await?.pop().ok_or(Refusal::NotFound)?,
    };
    let asker = Asker { user: &request.user, member: hot.member.as_ref(), admin: request.admin && needs_no_membership };
    let now = stores.clock.now();
    let windows = windows(stores);
    let command = with_pictures(stores, request, &message).await?;
    let Some((turn, changed)) = decide(conversation, &message, &asker, &command, windows, now)? else {
        return Ok(Ok(message));
    };
    // Once for all tries: what is wanted stays the same.
    if turn == Turn::Edited && !std::mem::replace(asked, true) {
        may_edit(stores, &changed, until).await?;
    }
    let wanted = MessageChange {
        member: hot.member.as_ref().map(|member| (&member.user, (turn == Turn::Deleted).then_some(member.role))),
        message: &changed,
        read_at: conversation.rev,
        blocked: conversation.blocks.any(),
        cleared_max: hot.head.cleared_max,
        unnamed: if turn == Turn::Deleted { &message.mentions } else { &[] },
        // Where everybody sees the message the counts go with the pointer; elsewhere it is looked at for each reader.
        change: change_of(turn, &message, &changed, conversation.history == History::All && request.seq > hot.head.cleared_max),
    };
    Ok(match commit(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &wanted).await {
        Ok(MessageChanged::Done { rev }) => Ok(Message { rev, ..changed }),
        Ok(MessageChanged::NotMember) => return Err(Refusal::NotFound),
        Ok(MessageChanged::Overloaded) => return Err(Refusal::Overloaded),
        Ok(MessageChanged::Changed) => Err(Obstacle::Changed),
        Ok(MessageChanged::Cold) => Err(Obstacle::Cold),
        Ok(MessageChanged::Closed) => Err(Obstacle::Closed),
        Ok(MessageChanged::StaleEpoch) => Err(Obstacle::StaleEpoch),
        Err(error) => Err(Obstacle::Redis(error)),
    })
}

/// The wish with the pictures that it names. Those that the message does not show yet must be its sender's own, and are kept for it from here
/// on; where the message cannot show any, or is somebody else's, they are named as they came and [`decide`] says no.
async fn with_pictures(stores: &Stores, request: &ChangeRequest, message: &Message) -> Result<MessageCommand, Refusal> {
    let (MessageCommand::Edit { body, .. }, Some(ids)) = (&request.command, &request.pictures) else { return Ok(request.command.clone()) };
    let shown = |id: &Uuid| message.media.iter().find(|item| item.id == *id).cloned();
    let shows = message.kind == MessageKind::Image && message.sender == request.user && message.deleted_at.is_none();
    let mut claimed = Vec::new();
    if shows && !ids.iter().all(|id| shown(id).is_some()) {
        // Proven before anything is claimed: what the words place, too.
        let ids_text: Vec<String> = ids.iter().map(ToString::to_string).collect();
        check_placeholders(body.as_deref().unwrap_or(&message.body), &ids_text)?;
        let claim = ClaimFor { conversation: request.conversation.clone(), message: message.id, seq: Some(message.seq) };
        claimed = claim_media(stores, &request.user, ids, Some(claim)).await?;
    }
    let item = |id: &Uuid| {
        let unknown = || MediaItem { id: *id, mime_type: String::new(), size: 0, width: 0, height: 0 };
        shown(id).or_else(|| claimed.iter().find(|item| item.id == *id).cloned()).unwrap_or_else(unknown)
    };
    Ok(MessageCommand::Edit { body: body.clone(), media: Some(ids.iter().map(item).collect()) })
}

fn windows(stores: &Stores) -> Windows {
    let ms = |seconds: u64| Millis::try_from(seconds.saturating_mul(1_000)).unwrap_or(Millis::MAX);
    Windows { recall: ms(stores.settings.recall_window), edit: stores.settings.edit_window.map(ms) }
}

/// What the outbox says of a change.
fn change_of(turn: Turn, before: &Message, after: &Message, is_seen_by_all: bool) -> Change {
    let version = || StoredVersion {
        rev: before.rev,
        at: before.edited_at.unwrap_or(before.created_at),
        b: before.body.clone(),
        m: before.media.iter().map(|item| item.id).collect(),
    };
    let (kind, data) = match turn {
        Turn::Edited => (EventType::MessageEdited, None),
        Turn::Deleted => (EventType::MessageDeleted, None),
        Turn::Reacted => {
            let counts: Vec<_> = after.reactions.iter().map(|r| json!({"emoji": r.emoji, "count": r.users.len()})).collect();
            (EventType::ReactionChanged, is_seen_by_all.then(|| json!({"seq": after.seq, "reactions": counts})))
        }
    };
    Change { events: vec![StoredEvent::new(kind, Audience::All, data)], before: (turn != Turn::Reacted).then(version), ..Change::default() }
}
