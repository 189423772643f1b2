//! Tells gateways that some of their users got something. See `lua/wake_gateway.lua`.
//!
//! A wake-up is a hint: it may be lost, come twice or come late. It carries enough to push without asking anybody, and for each user the
//! entry before the new one, so that the gateway can tell whether it would skip something. An event that leaves no entry comes with its
//! users alone, and here alone: when its wake-up is lost, it is lost.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::error::RedisError;
use super::event_log::{entry_id, parse_pointer, pointer_text};
use super::keys::wakeups;
use super::link::{BlockingReader, Link, Script};
use super::stored_form::Unreadable;
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Millis, Rev, UserId};
use crate::domain::position::{EntryId, Position};

/// The script.
pub static SCRIPT: Script = Script { name: "wake_gateway", source: include_str!("../../lua/wake_gateway.lua") };

/// Wake-ups that wait for a gateway at most; older ones are dropped.
const WAKES_MAX: u64 = 4_096;
/// Time for which a wake-up is kept, and the stream after its last one.
const LIFE_MS: u64 = 120_000;

/// One event and who got it.
#[derive(Clone, Debug, PartialEq)]
pub struct Wake {
    /// The event.
    pub pointer: Pointer,
    /// The message's JSON as stored, when the event is about one and it is to be pushed at once; without it and without facts in the
    /// pointer the gateway reads the logs.
    pub message: Option<String>,
    /// Whose logs hold it now, and where.
    pub recipients: Vec<Woken>,
}

/// One user's entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Woken {
    /// Who.
    pub user: UserId,
    /// The entry.
    pub position: Position,
    /// The entry before it.
    pub previous: EntryId,
}

/// An event that leaves no entry, and whose streams are told of it.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveWake {
    /// The event; its data is what is shown.
    pub event: Pointer,
    /// Whose streams.
    pub users: Vec<UserId>,
}

/// What a gateway is woken for.
#[derive(Clone, Debug, PartialEq)]
pub enum WakeUp {
    /// Entries in logs.
    Logged(Wake),
    /// Nothing in any log.
    Live(LiveWake),
    /// The streams of these users are to end.
    Ended(Vec<UserId>),
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredWakeUp {
    Logged(StoredWake),
    Live(StoredLive),
    Ended(StoredEnded),
}

#[derive(Serialize, Deserialize)]
struct StoredEnded {
    ended: Vec<String>,
}

#[derive(Serialize, Deserialize)]
struct StoredLive {
    /// The type's name: types that are never kept have no code.
    e: String,
    c: String,
    v: Rev,
    t: Millis,
    d: String,
    u: Vec<String>,
}

impl LiveWake {
    fn to_json(&self) -> String {
        let event = &self.event;
        let stored = StoredLive {
            e: event.kind.as_str().to_owned(),
            c: event.conversation.to_string(),
            v: event.rev,
            t: event.at,
            d: event.data.clone().unwrap_or_else(|| "{}".to_owned()),
            u: self.users.iter().map(ToString::to_string).collect(),
        };
        // A struct of strings and numbers always serialises.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    fn read(stored: StoredLive) -> Result<Self, Unreadable> {
        Ok(Self {
            event: Pointer {
                kind: EventType::parse(&stored.e).ok_or(Unreadable("live event type"))?,
                conversation: ConversationId::parse(&stored.c).ok_or(Unreadable("live event conversation"))?,
                rev: stored.v,
                seq: 0,
                at: stored.t,
                data: Some(stored.d),
            },
            users: read_users(&stored.u)?,
        })
    }
}

fn read_users(users: &[String]) -> Result<Vec<UserId>, Unreadable> {
    users.iter().map(|user| UserId::parse(user).map_err(|_| Unreadable("woken user"))).collect()
}

impl WakeUp {
    fn parse(json: &[u8]) -> Result<Self, Unreadable> {
        match serde_json::from_slice(json).map_err(|_| Unreadable("wake-up"))? {
            StoredWakeUp::Logged(stored) => Wake::read(stored).map(Self::Logged),
            StoredWakeUp::Live(stored) => LiveWake::read(stored).map(Self::Live),
            StoredWakeUp::Ended(stored) => read_users(&stored.ended).map(Self::Ended),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct StoredWake {
    p: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    d: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    m: Option<String>,
    r: Vec<(String, String, String)>,
}

impl Wake {
    fn to_json(&self) -> String {
        let r = self.recipients.iter().map(|w| (w.user.to_string(), w.position.to_string(), w.previous.to_string())).collect();
        let stored = StoredWake { p: pointer_text(&self.pointer), d: self.pointer.data.clone(), m: self.message.clone(), r };
        // A struct of strings always serialises.
        serde_json::to_string(&stored).unwrap_or_default()
    }

    fn read(stored: StoredWake) -> Result<Self, Unreadable> {
        let read = |(user, position, previous): (String, String, String)| {
            Ok(Woken {
                user: UserId::parse(&user).map_err(|_| Unreadable("woken user"))?,
                position: Position::parse(&position).ok_or(Unreadable("woken position"))?,
                previous: entry_id(&previous)?,
            })
        };
        let recipients = stored.r.into_iter().map(read).collect::<Result<_, Unreadable>>()?;
        Ok(Self { pointer: parse_pointer(&stored.p, stored.d)?, message: stored.m, recipients })
    }
}

/// Sends wake-ups to a gateway, in order.
///
/// # Errors
/// When Redis cannot be asked. Nothing needs to be done about it: the gateway finds out by itself, a little later.
pub async fn wake_gateway(link: &Link, gateway: &str, wakes: &[Wake]) -> Result<(), RedisError> {
    if wakes.is_empty() {
        return Ok(());
    }
    send(link, gateway, wakes.iter().map(|wake| Bytes::from(wake.to_json()))).await.map(|_| ())
}

/// Sends a gateway an event that leaves no entry.
///
/// # Errors
/// When Redis cannot be asked; the event is lost there.
pub async fn wake_live(link: &Link, gateway: &str, wake: &LiveWake) -> Result<(), RedisError> {
    send(link, gateway, std::iter::once(Bytes::from(wake.to_json()))).await.map(|_| ())
}

/// Tells a gateway to end the streams of users.
///
/// # Errors
/// When Redis cannot be asked; the streams go on there.
pub async fn wake_ended(link: &Link, gateway: &str, users: &[UserId]) -> Result<(), RedisError> {
    let stored = StoredEnded { ended: users.iter().map(ToString::to_string).collect() };
    // A struct of strings always serialises.
    let json = serde_json::to_string(&stored).unwrap_or_default();
    send(link, gateway, std::iter::once(Bytes::from(json))).await.map(|_| ())
}

/// Sends oneself an empty wake-up; the id it got shows whether the own reader still stands below what comes in.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn probe_wakeups(link: &Link, gateway: &str) -> Result<EntryId, RedisError> {
    send(link, gateway, std::iter::once(Bytes::from_static(b"probe"))).await
}

async fn send(link: &Link, gateway: &str, wakes: impl Iterator<Item = Bytes>) -> Result<EntryId, RedisError> {
    let mut args = vec![Bytes::from(WAKES_MAX.to_string()), Bytes::from(LIFE_MS.to_string())];
    args.extend(wakes);
    let reply = link.eval(&SCRIPT, vec![wakeups(gateway)], args).await?;
    let mut items = reply.items()?;
    if items.str()? != "woken" {
        return Err(Unreadable("wake_gateway").into());
    }
    Ok(entry_id(items.str()?)?)
}

/// Waits up to `wait_ms` for wake-ups after `after`: the place of the last one read, and those that could be read.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn read_wakeups(
    reader: &mut BlockingReader,
    gateway: &str,
    after: EntryId,
    wait_ms: u64,
) -> Result<(EntryId, Vec<WakeUp>), RedisError> {
    let entries = reader.read(&wakeups(gateway), &after.to_string(), 256, wait_ms).await?;
    let mut last = after;
    let mut wakes = Vec::with_capacity(entries.len());
    for entry in entries {
        last = entry_id(&entry.id)?;
        let Some((_, text)) = entry.fields.iter().find(|(name, text)| name == "w" && text.as_ref() != b"probe") else { continue };
        match WakeUp::parse(text) {
            Ok(wake) => wakes.push(wake),
            Err(error) => tracing::warn!(%error, "a wake-up cannot be read; its users are found by comparison with their logs"),
        }
    }
    Ok((last, wakes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::event::EventType;
    use crate::domain::ids::ConversationId;

    #[test]
    fn a_wake_up_reads_as_it_was_written() {
        let wake = Wake {
            pointer: Pointer {
                kind: EventType::MessageCreated,
                conversation: ConversationId::parse("system:x").unwrap(),
                rev: 5,
                seq: 2,
                at: 1_764_500_000_000,
                data: Some("{\"a\":[]}".to_owned()),
            },
            message: Some("{\"b\":\"\u{2028}\\n\"}".to_owned()),
            recipients: vec![Woken {
                user: UserId::parse("an \"n\" 张").unwrap(),
                position: Position::parse("abc.12-1").unwrap(),
                previous: EntryId { ms: 12, n: 0 },
            }],
        };
        assert_eq!(WakeUp::parse(wake.to_json().as_bytes()), Ok(WakeUp::Logged(wake.clone())));
        let live = LiveWake {
            event: Pointer { kind: EventType::TypingUpdated, seq: 0, data: Some("{\"typing\":true}".to_owned()), ..wake.pointer },
            users: vec![UserId::parse("an \"n\" 张").unwrap(), UserId::parse("bob").unwrap()],
        };
        assert_eq!(WakeUp::parse(live.to_json().as_bytes()), Ok(WakeUp::Live(live)));
        let ended = WakeUp::Ended(vec![UserId::parse("an \"n\" 张").unwrap()]);
        assert_eq!(WakeUp::parse("{\"ended\":[\"an \\\"n\\\" 张\"]}".as_bytes()), Ok(ended));
        assert!(WakeUp::parse(b"{}").is_err());
    }
}
