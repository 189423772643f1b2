//! Reads everything that Redis holds of a conversation at one moment, for an audit: what is not in its form is named, not refused.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use bytes::Bytes;

use super::conversation_head::Head;
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::read_conversation::parse_mark;
use super::reply::{Reply, unknown_word};
use super::stored_form::{parse_member, parse_window_value};
use crate::domain::ids::{ConversationId, Rev, Seq};
use crate::domain::membership::Member;
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "inspect_conversation", source: include_str!("../../lua/inspect_conversation.lua") };

/// Newest messages that are looked at.
pub const MESSAGES_MAX: u64 = 500;
/// Entries of each sorted set that are looked at.
pub const ENTRIES_MAX: u64 = 20_000;

/// A conversation in Redis.
#[derive(Clone, Debug)]
pub struct Inspected {
    /// Its head.
    pub head: Head,
    /// Next number to give.
    pub next: Seq,
    /// Whether Redis holds every key of the conversation.
    pub keys_all: bool,
    /// Members by user id.
    pub members: HashMap<String, Member>,
    /// Watermarks by user id.
    pub marks: HashMap<String, Seq>,
    /// The first number that was looked at in the window.
    pub from: Seq,
    /// The messages from there to the head that are there.
    pub messages: BTreeMap<Seq, Message>,
    /// Their revs in the index.
    pub revs: HashMap<Seq, Rev>,
    /// The numbers in the index by rev.
    pub rev_index: BTreeSet<Seq>,
    /// The numbers that never count as unread.
    pub uncounted: BTreeSet<Seq>,
    /// Numbers below the window that were changed.
    pub amended: BTreeSet<Seq>,
    /// Unread names: user, seq.
    pub mentions: BTreeSet<(String, Seq)>,
    /// Messages in the window.
    pub window: u64,
    /// What cannot be read, by what it is.
    pub unreadable: Vec<String>,
}

/// What was found.
#[derive(Clone, Debug)]
pub enum Inspection {
    /// It is in Redis.
    Here(Box<Inspected>),
    /// It is, and its head cannot be read.
    Unreadable(&'static str),
    /// It is not.
    Cold,
    /// The server is not the one the shard's epoch was opened on.
    StaleEpoch,
}

/// Reads a conversation.
///
/// # Errors
/// When Redis cannot be asked, a key of the wrong type included.
pub async fn inspect_conversation(link: &Link, keys: &Keys, id: &ConversationId) -> Result<Inspection, RedisError> {
    let k = keys.conversation(id);
    let names = vec![keys::shard_info(keys.shard_of(id)), k.head, k.members, k.marks, k.window, k.revs, k.uncounted, k.mentions, k.amended];
    let args = vec![Bytes::from(MESSAGES_MAX.to_string()), Bytes::from(ENTRIES_MAX.to_string())];
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "here" => {}
        "cold" => return Ok(Inspection::Cold),
        "stale_epoch" => return Ok(Inspection::StaleEpoch),
        _ => return Ok(unknown_word("inspect_conversation: unknown word")?),
    }
    let fields = items.item()?;
    let head = match Head::parse(id, fields) {
        Ok(head) => head,
        Err(fault) => return Ok(Inspection::Unreadable(fault.0)),
    };
    let Some(next) = field(fields, "next").and_then(|text| text.parse().ok()) else { return Ok(Inspection::Unreadable("next")) };
    let mut found = Inspected {
        head,
        next,
        keys_all: field(fields, "keys_all") == Some("1"),
        members: HashMap::new(),
        marks: HashMap::new(),
        from: 0,
        messages: BTreeMap::new(),
        revs: HashMap::new(),
        rev_index: BTreeSet::new(),
        uncounted: BTreeSet::new(),
        amended: BTreeSet::new(),
        mentions: BTreeSet::new(),
        window: 0,
        unreadable: Vec::new(),
    };
    for (user, record) in items.item()?.as_pairs()? {
        match user.as_str().and_then(|user| parse_member(user, record.as_str()?)) {
            Ok(member) => drop(found.members.insert(member.user.to_string(), member)),
            Err(_) => found.unreadable.push("members".to_owned()),
        }
    }
    for (user, mark) in items.item()?.as_pairs()? {
        match (user.as_str(), mark.as_str().and_then(parse_mark)) {
            (Ok(user), Ok((seq, _))) => drop(found.marks.insert(user.to_owned(), seq)),
            _ => found.unreadable.push("marks".to_owned()),
        }
    }
    found.from = items.u64()?;
    for three in items.list()?.chunks_exact(3) {
        let seq = three[0].as_u64()?;
        if let Some(value) = three[1].present() {
            match value.as_str().and_then(|value| parse_window_value(id, seq, value)) {
                Ok(message) => drop(found.messages.insert(seq, message)),
                Err(_) => found.unreadable.push(format!("window {seq}")),
            }
        }
        if let Some(rev) = three[2].present().and_then(score) {
            found.revs.insert(seq, rev);
        }
    }
    for set in [&mut found.rev_index, &mut found.uncounted, &mut found.amended] {
        set.extend(items.list()?.iter().filter_map(|seq| seq.as_u64().ok()));
    }
    for entry in items.list()? {
        match entry.as_str().ok().and_then(|text| text.split_once('\0')).and_then(|(user, seq)| Some((user.to_owned(), seq.parse().ok()?)))
        {
            Some(named) => drop(found.mentions.insert(named)),
            None => found.unreadable.push("mentions".to_owned()),
        }
    }
    found.window = items.u64()?;
    Ok(Inspection::Here(Box::new(found)))
}

fn field<'r>(fields: &'r Reply, name: &str) -> Option<&'r str> {
    fields.as_pairs().ok()?.find(|(found, _)| found.as_str() == Ok(name)).and_then(|(_, value)| value.as_str().ok())
}

/// A score as a whole number: Redis writes large ones with an exponent.
fn score(reply: &Reply) -> Option<u64> {
    let text = reply.as_str().ok()?;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "scores are whole numbers from 0 to 2^53")]
    let whole = |number: f64| number as u64;
    text.parse().ok().or_else(|| text.parse::<f64>().ok().map(whole))
}
