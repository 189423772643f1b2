//! What a wish about a message comes to: other words, taking it back, putting an emoji on it. Pure; the script only compares and applies.

use super::conversation::Conversation;
use super::ids::{Kind, Millis, UserId};
use super::membership::{Member, Role};
use super::message::{BODY_CHARS_MAX, MediaItem, Message, MessageKind, check_text_body};
use super::permission::{Act, Standing, may};
use super::reaction::{Emoji, react};
use super::refusal::{FieldError, Refusal};

/// Most pictures of a message.
pub const MEDIA_MAX: usize = 9;

/// A wish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MessageCommand {
    /// Other words or pictures; `None` leaves them.
    Edit {
        /// The words.
        body: Option<String>,
        /// The pictures, proven to be the sender's own.
        media: Option<Vec<MediaItem>>,
    },
    /// Take it back, or take it down.
    Delete,
    /// Put an emoji on it, or take it back.
    React {
        /// Which.
        emoji: Emoji,
        /// Put it, or take it back.
        put: bool,
    },
}

/// Why nothing new reaches the other one of a pair of whom one has blocked the other; it does not say which.
pub const BLOCKED: &str = "no new messages can be exchanged with this user";

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker<'a> {
    /// The user.
    pub user: &'a UserId,
    /// Their membership; `None` for the host's server and moderators, who need none.
    pub member: Option<&'a Member>,
    /// Whether they are a moderator.
    pub admin: bool,
}

/// How long a message may be changed after it was sent, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    /// For a recall by its sender; 0 is never.
    pub recall: Millis,
    /// For an edit; `None` is always.
    pub edit: Option<Millis>,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It has other words.
    Edited,
    /// It is gone, its number stays.
    Deleted,
    /// Its reactions are others.
    Reacted,
}

/// Decides: the message afterwards, without its new rev, or `None` when everything is so already.
///
/// # Errors
/// In the contract's order: what cannot be the content of such a message, then what the asker may not do, then [`Refusal::Deleted`].
pub fn decide(
    conversation: &Conversation,
    message: &Message,
    asker: &Asker<'_>,
    command: &MessageCommand,
    windows: Windows,
    now: Millis,
) -> Result<Option<(Turn, Message)>, Refusal> {
    let standing = match (asker.member, asker.admin) {
        (Some(member), _) => Standing::Member(member.role),
        (None, true) => Standing::Admin,
        (None, false) => Standing::Service,
    };
    let kind = conversation.kind();
    let timeline = message.kind == MessageKind::System;
    // In whosever name something was posted in a system conversation: it was the service.
    let by_service = kind == Kind::System && standing == Standing::Service;
    let own = !timeline && (by_service || message.sender == *asker.user);
    match command {
        MessageCommand::Edit { body, media } => {
            let mut edited = message.clone();
            edited.body = body.clone().unwrap_or(edited.body);
            edited.media = media.clone().unwrap_or(edited.media);
            if message.deleted_at.is_none() && !timeline {
                check_content(&edited, media.is_some())?;
            }
            if timeline {
                return Err(Refusal::Forbidden("the timeline cannot be edited"));
            }
            if !own || !may(Act::EditOwn, kind, standing) {
                return Err(forbidden(kind, "only its sender edits a message"));
            }
            if message.deleted_at.is_some() {
                return Err(Refusal::Deleted);
            }
            if edited == *message {
                return Ok(None);
            }
            // Other words would reach the other one like a new message.
            if conversation.blocks.any() {
                return Err(Refusal::Forbidden(BLOCKED));
            }
            if windows.edit.is_some_and(|window| now - message.created_at > window) {
                return Err(Refusal::Forbidden("the time for editing this message is over"));
            }
            edited.edited_at = Some(now.max(message.created_at));
            Ok(Some((Turn::Edited, edited)))
        }
        MessageCommand::Delete => {
            if timeline {
                return Err(Refusal::Forbidden("the timeline cannot be deleted"));
            }
            let master = asker.admin || (kind == Kind::Group && asker.member.is_some_and(|m| m.role == Role::Owner));
            let as_sender = own && may(Act::DeleteOwn, kind, standing);
            let as_master = master && may(Act::DeleteAny, kind, master_standing(asker));
            if !as_sender && !as_master {
                return Err(forbidden(kind, "only its sender, the group's owner and moderators delete a message"));
            }
            if message.deleted_at.is_some() {
                return Ok(None);
            }
            // A bound of 0 is "never", also in the very millisecond of the sending.
            if !master && (windows.recall == 0 || now - message.created_at > windows.recall) {
                return Err(Refusal::Forbidden("the time for taking this message back is over"));
            }
            Ok(Some((Turn::Deleted, message.taken_back(asker.user, now))))
        }
        MessageCommand::React { emoji, put } => {
            if !may(Act::React, kind, standing) {
                return Err(forbidden(kind, "only members react to a message"));
            }
            if timeline {
                return Err(Refusal::Forbidden("the timeline takes no reactions"));
            }
            let Some(reactions) = react(message, asker.user, emoji, *put)? else { return Ok(None) };
            if *put && conversation.blocks.any() {
                return Err(Refusal::Forbidden(BLOCKED));
            }
            Ok(Some((Turn::Reacted, Message { reactions, ..message.clone() })))
        }
    }
}

fn master_standing(asker: &Asker<'_>) -> Standing {
    match asker.member {
        _ if asker.admin => Standing::Admin,
        Some(member) => Standing::Member(member.role),
        None => Standing::Service,
    }
}

fn forbidden(kind: Kind, why: &'static str) -> Refusal {
    if kind == Kind::System { Refusal::ReadOnly } else { Refusal::Forbidden(why) }
}

/// Proves that a message can have these words and pictures.
///
/// # Errors
/// Names `body` or `media`.
pub fn check_content(message: &Message, media_named: bool) -> Result<(), FieldError> {
    match message.kind {
        MessageKind::Text => {
            if media_named && !message.media.is_empty() {
                return Err(FieldError::new("media", "belongs to messages of kind 'image'"));
            }
            check_text_body(&message.body)
        }
        MessageKind::Image => {
            if message.media.is_empty() || message.media.len() > MEDIA_MAX {
                return Err(FieldError::new("media", format!("must hold 1 to {MEDIA_MAX} ids")));
            }
            check_free_body(&message.body)?;
            let ids: Vec<String> = message.media.iter().map(|m| m.id.to_string()).collect();
            check_placeholders(&message.body, &ids)
        }
        MessageKind::Share => {
            if media_named && !message.media.is_empty() {
                return Err(FieldError::new("media", "belongs to messages of kind 'image'"));
            }
            check_free_body(&message.body)
        }
        MessageKind::System => Ok(()),
    }
}

/// Proves a body that may be empty: at most 4,000 characters, no U+0000.
///
/// # Errors
/// Names `body`.
pub fn check_free_body(body: &str) -> Result<(), FieldError> {
    if body.contains('\0') {
        return Err(FieldError::new("body", "must not hold U+0000"));
    }
    if body.chars().count() > BODY_CHARS_MAX {
        return Err(FieldError::new("body", "must be at most 4000 characters"));
    }
    Ok(())
}

/// Proves that every `![img:<id>]` in a body names one of the message's pictures.
///
/// # Errors
/// Names `body`.
pub fn check_placeholders(body: &str, ids: &[String]) -> Result<(), FieldError> {
    for part in body.split("![img:").skip(1) {
        let named = part.split_once(']').map(|(id, _)| id);
        if !named.is_some_and(|id| ids.iter().any(|known| known == id)) {
            return Err(FieldError::new("body", "places a picture that is not in 'media'"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::block::Blocks;
    use crate::domain::conversation::History;
    use crate::domain::ids::ConversationId;
    use crate::domain::preferences::Preferences;
    use uuid::Uuid;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn conversation(id: &str) -> Conversation {
        Conversation {
            id: ConversationId::parse(id).unwrap(),
            title: None,
            owner: Some(user("ann")),
            pair: None,
            history: History::All,
            member_count: 3,
            head_seq: 1,
            rev: 1,
            created_at: 0,
            updated_at: 0,
            dissolved: false,
            voids: Vec::new(),
            blocks: Blocks::default(),
        }
    }

    const GROUP: &str = "group:0193c1ef-11aa-7d10-9b1d-0b8f3a6a2c11";
    const WINDOWS: Windows = Windows { recall: 1_000, edit: None };

    fn said_by(sender: &str) -> Message {
        let mut message = Message::unplaced(Uuid::now_v7(), ConversationId::parse(GROUP).unwrap(), user(sender), MessageKind::Text, 10_000);
        message.body = "hello".into();
        message
    }

    fn check(message: &Message, asker: (&str, Option<Role>, bool), command: &MessageCommand, now: Millis) -> Result<Option<Turn>, Refusal> {
        let name = user(asker.0);
        let member = asker.1.map(|role| Member {
            user: name.clone(),
            role,
            joined_at: 0,
            joined_seq: 0,
            joined_rev: 1,
            preferences: Preferences::default(),
        });
        let asker = Asker { user: &name, member: member.as_ref(), admin: asker.2 };
        decide(&conversation(GROUP), message, &asker, command, WINDOWS, now).map(|done| done.map(|(turn, _)| turn))
    }

    #[test]
    fn who_may_change_what_and_when() {
        let edit = |body: &str| MessageCommand::Edit { body: Some(body.into()), media: None };
        let message = said_by("bob");
        let bob = ("bob", Some(Role::Member), false);
        let ann = ("ann", Some(Role::Owner), false);
        let cid = ("cid", Some(Role::Member), false);
        let admin = ("mod", None, true);
        assert_eq!(check(&message, bob, &edit("other"), 10_500), Ok(Some(Turn::Edited)));
        assert_eq!(check(&message, bob, &edit("hello"), 10_500), Ok(None));
        assert!(matches!(check(&message, ann, &edit("other"), 10_500), Err(Refusal::Forbidden(_))));
        assert!(matches!(check(&message, bob, &edit(" "), 10_500), Err(Refusal::Invalid(_))));
        assert!(matches!(check(&message, cid, &edit(" "), 10_500), Err(Refusal::Invalid(_))), "the body is looked at before the right");
        assert_eq!(check(&message, bob, &MessageCommand::Delete, 11_000), Ok(Some(Turn::Deleted)));
        assert!(matches!(check(&message, bob, &MessageCommand::Delete, 11_001), Err(Refusal::Forbidden(_))));
        assert_eq!(check(&message, ann, &MessageCommand::Delete, 99_000), Ok(Some(Turn::Deleted)));
        assert_eq!(check(&message, admin, &MessageCommand::Delete, 99_000), Ok(Some(Turn::Deleted)));
        assert!(matches!(check(&message, cid, &MessageCommand::Delete, 10_500), Err(Refusal::Forbidden(_))));
        let gone = Message { deleted_at: Some(10_600), body: String::new(), ..message };
        assert_eq!(check(&gone, bob, &edit("again"), 10_700), Err(Refusal::Deleted));
        assert_eq!(check(&gone, bob, &MessageCommand::Delete, 99_000), Ok(None));
        let thumb = MessageCommand::React { emoji: Emoji::parse("\u{1F44D}").unwrap(), put: true };
        assert_eq!(check(&gone, bob, &thumb, 10_700), Err(Refusal::Deleted));
    }

    #[test]
    fn placeholders_name_pictures_of_the_message() {
        let ids = ["a".to_owned(), "b".to_owned()];
        for (body, good) in
            [("", true), ("x ![img:a] y ![img:b]", true), ("![img:c]", false), ("![img:a", false), ("![img:]", false), ("![x]", true)]
        {
            assert_eq!(check_placeholders(body, &ids).is_ok(), good, "{body}");
        }
    }
}
