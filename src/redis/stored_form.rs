//! How messages, members and changes are written in Redis. Lua moves the JSON as opaque strings: cjson would turn `[]` into `{}`
//! and 10^14 into `1e+14`.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::domain::event::EventType;
use crate::domain::ids::{ClientKey, ConversationId, Millis, Rev, Seq, UserId};
use crate::domain::membership::{Member, Role};
use crate::domain::message::{MediaItem, Message, MessageKind, Share};
use crate::domain::preferences::Preferences;
use crate::domain::reaction::Reaction;

/// A stored value that cannot be read; names what was wrong, never the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unreadable stored form: {0}")]
pub struct Unreadable(pub &'static str);

/// A message without its place: seq and rev stand outside, where Lua puts them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StoredMessage {
    /// Message id.
    pub id: Uuid,
    /// Sender's user id.
    pub s: String,
    /// Idempotency key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<String>,
    /// Message kind.
    pub t: String,
    /// Body.
    pub b: String,
    /// Pictures: id, type, bytes, width, height.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub m: Vec<(Uuid, String, u64, u32, u32)>,
    /// Seq of the message it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub re: Option<Seq>,
    /// What it shares: type, id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sh: Option<(String, String)>,
    /// Users it names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mt: Vec<String>,
    /// Reactions: emoji, users.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rc: Vec<(String, Vec<String>)>,
    /// Structured data of a timeline message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d: Option<serde_json::Value>,
    /// Created at, ms.
    pub at: Millis,
    /// Client's clock, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cat: Option<Millis>,
    /// Edited at, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eat: Option<Millis>,
    /// Deleted at, ms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dat: Option<Millis>,
    /// Deleted by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dby: Option<String>,
    /// Fingerprint of what was first sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub f: Option<String>,
}

impl StoredMessage {
    /// The stored form of a message; its place is left out.
    #[must_use]
    pub fn of(message: &Message) -> Self {
        Self {
            id: message.id,
            s: message.sender.to_string(),
            k: message.client_id.as_ref().map(ToString::to_string),
            t: message.kind.as_str().to_owned(),
            b: message.body.clone(),
            m: message.media.iter().map(|m| (m.id, m.mime_type.clone(), m.size, m.width, m.height)).collect(),
            re: message.reply_to,
            sh: message.share.as_ref().map(|s| (s.kind.clone(), s.id.clone())),
            mt: message.mentions.iter().map(ToString::to_string).collect(),
            rc: message.reactions.iter().map(|r| (r.emoji.clone(), r.users.iter().map(ToString::to_string).collect())).collect(),
            d: message.data.clone(),
            at: message.created_at,
            cat: message.client_sent_at,
            eat: message.edited_at,
            dat: message.deleted_at,
            dby: message.deleted_by.as_ref().map(ToString::to_string),
            f: message.fingerprint.clone(),
        }
    }

    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A struct of strings and numbers always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Back to a message, at its place.
    ///
    /// # Errors
    /// When a field holds what was never written.
    pub fn into_message(self, conversation: &ConversationId, seq: Seq, rev: Rev) -> Result<Message, Unreadable> {
        Ok(Message {
            id: self.id,
            conversation: conversation.clone(),
            seq,
            rev,
            sender: UserId::parse(&self.s).map_err(|_| Unreadable("sender"))?,
            client_id: self.k.map(|k| ClientKey::parse(&k)).transpose().map_err(|_| Unreadable("client id"))?,
            kind: MessageKind::parse(&self.t).ok_or(Unreadable("message kind"))?,
            body: self.b,
            media: self
                .m
                .into_iter()
                .map(|(id, mime_type, size, width, height)| MediaItem { id, mime_type, size, width, height })
                .collect(),
            reply_to: self.re,
            share: self.sh.map(|(kind, id)| Share { kind, id }),
            mentions: users(&self.mt, "mention")?,
            reactions: self
                .rc
                .into_iter()
                .map(|(emoji, names)| Ok(Reaction { emoji, users: users(&names, "reaction's user")? }))
                .collect::<Result<_, Unreadable>>()?,
            data: self.d,
            client_sent_at: self.cat,
            created_at: self.at,
            edited_at: self.eat,
            deleted_at: self.dat,
            deleted_by: self.dby.map(|u| UserId::parse(&u)).transpose().map_err(|_| Unreadable("deleted by"))?,
            fingerprint: self.f,
        })
    }
}

fn users(names: &[String], what: &'static str) -> Result<Vec<UserId>, Unreadable> {
    names.iter().map(|name| UserId::parse(name).map_err(|_| Unreadable(what))).collect()
}

/// Reads a window value, `<rev> <message json>`.
///
/// # Errors
/// When it is not in that form.
pub fn parse_window_value(conversation: &ConversationId, seq: Seq, value: &str) -> Result<Message, Unreadable> {
    let (rev, json) = value.split_once(' ').ok_or(Unreadable("window value"))?;
    let rev = rev.parse().map_err(|_| Unreadable("rev"))?;
    parse_message_json(conversation, seq, rev, json)
}

/// Reads a message's JSON at a known place.
///
/// # Errors
/// When it is not in that form.
pub fn parse_message_json(conversation: &ConversationId, seq: Seq, rev: Rev, json: &str) -> Result<Message, Unreadable> {
    let stored: StoredMessage = serde_json::from_str(json).map_err(|_| Unreadable("message json"))?;
    stored.into_message(conversation, seq, rev)
}

/// Writes a member record, `<o|m> <joined_at> <joined_seq> <joined_rev>`; behind it stand preferences that are not the usual ones,
/// `<m|-><p|-> <hidden_to|-> <marked_at|-> <cleared_to>`.
#[must_use]
pub fn member_record(member: &Member) -> String {
    let role = match member.role {
        Role::Owner => 'o',
        Role::Member => 'm',
    };
    let joined = format!("{role} {} {} {}", member.joined_at, member.joined_seq, member.joined_rev);
    let p = &member.preferences;
    if *p == Preferences::default() {
        return joined;
    }
    let flag = |set: bool, letter: char| if set { letter } else { '-' };
    let place = |seq: Option<Seq>| seq.map_or("-".to_owned(), |seq| seq.to_string());
    let (muted, pinned) = (flag(p.muted, 'm'), flag(p.pinned, 'p'));
    format!("{joined} {muted}{pinned} {} {} {}", place(p.hidden_to), place(p.marked_at), p.cleared_to)
}

/// Writes what stands in a conversation's mentions for a message that names a user.
#[must_use]
pub fn mention_entry(user: &UserId, seq: Seq) -> String {
    format!("{user}\0{seq:016}")
}

/// Reads a member record.
///
/// # Errors
/// When it is not in that form.
pub fn parse_member(user: &str, record: &str) -> Result<Member, Unreadable> {
    let mut parts = record.split(' ');
    let role = match parts.next() {
        Some("o") => Role::Owner,
        Some("m") => Role::Member,
        _ => return Err(Unreadable("role")),
    };
    let user = UserId::parse(user).map_err(|_| Unreadable("member id"))?;
    let joined_at = number(parts.next())?;
    let joined_seq = number(parts.next())?;
    let joined_rev = number(parts.next())?;
    let preferences = match parts.next() {
        None => Preferences::default(),
        Some(flags) => Preferences {
            muted: flags.starts_with('m'),
            pinned: flags.ends_with('p'),
            hidden_to: place(parts.next())?,
            marked_at: place(parts.next())?,
            cleared_to: number(parts.next())?,
        },
    };
    Ok(Member { user, role, joined_at, joined_seq, joined_rev, preferences })
}

fn place(text: Option<&str>) -> Result<Option<Seq>, Unreadable> {
    if text == Some("-") { Ok(None) } else { number(text).map(Some) }
}

fn number<T: std::str::FromStr>(text: Option<&str>) -> Result<T, Unreadable> {
    text.and_then(|t| t.parse().ok()).ok_or(Unreadable("number"))
}

/// To whom of an entry's recipients one of its events goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Audience {
    /// Everybody whose interval contains the entry's rev.
    All,
    /// Only these of them.
    Only(Vec<String>),
    /// Everybody but these.
    Except(Vec<String>),
}

/// An event that a change makes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// Event type's code, see [`EventType::code`].
    pub t: String,
    /// To whom.
    pub to: Audience,
    /// Small facts as a JSON object; none for events that are read when sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d: Option<serde_json::Value>,
}

impl StoredEvent {
    /// An event of this type for this audience.
    #[must_use]
    pub fn new(kind: EventType, to: Audience, data: Option<serde_json::Value>) -> Self {
        Self { t: kind.code().to_owned(), to, d: data }
    }
}

/// Stands for the seq that the script is about to give.
pub const SEQ_OWN: Seq = Seq::MAX;

/// A membership as the archive keeps it; `left_rev` is set when it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredMember {
    /// User id.
    pub u: String,
    /// `owner` or `member`.
    pub role: String,
    /// Joined at, ms.
    pub at: Millis,
    /// Joined seq.
    pub seq: Seq,
    /// Joined rev.
    pub rev: Rev,
    /// Left rev.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Rev>,
}

impl StoredMember {
    /// With what only the script knew: a `rev` of 0 stands for this entry's rev, a `seq` of
    /// [`SEQ_OWN`] for its seq, a `left` of 0 for its rev.
    #[must_use]
    pub fn resolved(&self, entry_rev: Rev, entry_seq: Option<Seq>) -> Self {
        let mut known = self.clone();
        if known.rev == 0 {
            known.rev = entry_rev;
        }
        if known.seq == SEQ_OWN {
            known.seq = entry_seq.unwrap_or(0);
        }
        if known.left == Some(0) {
            known.left = Some(entry_rev);
        }
        known
    }
}

/// A conversation's common facts as the archive keeps them (head and rev come from the entry itself).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConversation {
    /// Title.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// The two users of a single conversation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<(String, String)>,
    /// `all` or `from_join`.
    pub history: String,
    /// Made at, ms.
    pub at: Millis,
    /// Whether it has ended.
    #[serde(default)]
    pub dissolved: bool,
}

/// A message's words as they once stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredVersion {
    /// Rev of the message then.
    pub rev: Rev,
    /// Since when they had stood, ms.
    pub at: Millis,
    /// Body.
    pub b: String,
    /// Ids of its pictures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub m: Vec<Uuid>,
}

/// A member's preferences as the archive keeps them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredPreferences {
    /// User id.
    pub u: String,
    /// Rev of the join of the membership that they belong to.
    pub joined: Rev,
    /// Muted.
    #[serde(default)]
    pub m: bool,
    /// Pinned.
    #[serde(default)]
    pub p: bool,
    /// Hidden up to this seq.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub h: Option<Seq>,
    /// Marked unread at this watermark.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub k: Option<Seq>,
    /// Cleared up to this seq.
    #[serde(default)]
    pub c: Seq,
}

/// A block between the two of a single conversation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredBlock {
    /// Who blocks.
    pub by: String,
    /// Whom.
    pub of: String,
    /// Since when, ms; `None` when it was lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Millis>,
}

/// What an outbox entry says beside its message: facts for the archive and events for the members. Made in Rust, opaque to Lua.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Events in the order in which members get them. Empty with a message: `message.created` to all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<StoredEvent>,
    /// The conversation's facts when they changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conversation: Option<StoredConversation>,
    /// Memberships that changed, in full; what only the script knows is filled in by [`StoredMember::resolved`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<StoredMember>,
    /// A watermark that moved: user, seq, at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read: Option<(String, Seq, Millis)>,
    /// What the entry's message was before its words were changed or taken back, for the record of edits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<StoredVersion>,
    /// A member's preferences that changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preferences: Option<StoredPreferences>,
    /// A block that was set or lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block: Option<StoredBlock>,
    /// Numbers that were passed and will never hold a message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub voids: Vec<(Seq, Seq)>,
}

impl Change {
    /// One that only tells everybody of its message.
    #[must_use]
    pub fn telling(kind: EventType, data: Option<serde_json::Value>) -> Self {
        Self { events: vec![StoredEvent::new(kind, Audience::All, data)], ..Self::default() }
    }

    /// As one JSON object.
    #[must_use]
    pub fn to_json(&self) -> String {
        // A tree of strings and numbers always serialises.
        serde_json::to_string(self).unwrap_or_default()
    }
}
