//! What Redis holds of one conversation, compared with itself and with the archive.
//!
//! What is read of the archive is read first: it follows Redis, so whatever it is ahead of Redis in is wrong. Where both must be the same,
//! they are compared only when their revs are the same and nothing can be under way.

use std::collections::{BTreeMap, BTreeSet};

use super::Stores;
use super::archive_outbox::ArchiveStop;
use crate::domain::audit::{Code, Finding, covers, next_after};
use crate::domain::ids::ConversationId;
use crate::domain::ids::{ClientKey, Kind, Seq};
use crate::domain::membership::Role;
use crate::domain::message::{Message, MessageKind};
use crate::postgres::audit_facts::AuditedConversation;
use crate::redis::audit_keys::{in_window, known_keys, scan_keys};
use crate::redis::error::RedisError;
use crate::redis::inspect_conversation::{ENTRIES_MAX, Inspected, Inspection, inspect_conversation};
use crate::redis::link::LinkError;
use crate::redis::read_shard::read_shard;

/// Rows that are read for one comparison.
const ROWS_MAX: u64 = 20_000;
/// Messages read at once.
const MESSAGES_AT_ONCE: usize = 300;
/// Findings of one sort in one conversation.
const SAME_MAX: usize = 100;

/// What a look into Redis came to.
#[derive(Debug, Default)]
pub struct HotLook {
    /// What is wrong.
    pub found: Vec<Finding>,
    /// Whether the archive has everything that Redis has: then it must be right by itself.
    pub settled: bool,
    /// Numbers that stand in Redis, with nothing left that would bring them to the archive.
    pub stranded: Vec<Seq>,
    /// The head in Redis.
    pub head: Option<Seq>,
}

/// Compares a conversation; `archived` is how the archive had it before this call.
///
/// # Errors
/// When a store does not answer.
pub async fn look_at_hot(stores: &Stores, id: &ConversationId, archived: Option<&AuditedConversation>) -> Result<HotLook, ArchiveStop> {
    let mut look = HotLook::default();
    let uncounted = stores.archive.uncounted_after(id, 0, ROWS_MAX).await?;
    let named = stores.archive.audited_mentions(id, ROWS_MAX).await?;
    let hot = match inspect_conversation(&stores.link, &stores.keys, id).await {
        Ok(Inspection::Here(hot)) => hot,
        Ok(Inspection::Cold) => {
            look.settled = true;
            if let Some(a) = archived
                && let Some((from, _, true, epoch)) = a.lease
                && a.epoch == Some(epoch)
            {
                look.found.push(Finding::of(Code::KeysLost, id).at(from));
            }
            return Ok(look);
        }
        Ok(Inspection::StaleEpoch) => return Ok(look),
        Ok(Inspection::Unreadable(what)) => {
            look.found.push(Finding::of(Code::Unreadable, id).about(what));
            return Ok(look);
        }
        // Of the wrong type.
        Err(RedisError::Link(LinkError::Refused(_)) | RedisError::Unreadable(_)) => {
            look.found.push(Finding::of(Code::Unreadable, id).about("keys"));
            return Ok(look);
        }
        Err(error) => return Err(error.into()),
    };
    look.head = Some(hot.head.conversation.head_seq);
    look.found.extend(hot.unreadable.iter().map(|what| Finding::of(Code::Unreadable, id).about(what.clone())));
    look.found.extend(judge_lease(id, &hot, archived));
    if !hot.head.made {
        return Ok(look);
    }
    let floor_rev = hot.head.lease_epoch << 32;
    let rev = hot.head.conversation.rev;
    look.settled = archived.is_some_and(|a| a.rev == rev || (a.rev == floor_rev && rev < floor_rev));
    look.found.extend(judge_facts(id, &hot, archived, look.settled));
    look.found.extend(judge_window(id, &hot));
    look.found.extend(judge_uncounted(id, &hot, &uncounted));
    look.found.extend(judge_missing_mentions(id, &hot, &named));
    let older: Vec<Seq> = unread_mentions(&hot).map(|(_, seq)| *seq).filter(|seq| *seq < hot.from).collect();
    let older = messages(stores, id, &older).await?;
    look.found.extend(judge_mentions(id, &hot, &older));

    let seqs: Vec<Seq> = hot.messages.keys().copied().collect();
    let rows = messages(stores, id, &seqs).await?;
    let shard = read_shard(&stores.link, stores.keys.shard_of(id)).await?;
    let idle = shard.entries == 0 || shard.archived >= shard.last;
    for (seq, message) in &hot.messages {
        match rows.get(seq) {
            Some(row) => look.found.extend(judge_row(id, message, row)),
            None if idle => look.stranded.push(*seq),
            None => {}
        }
    }
    if let Some(a) = archived
        && idle
        && hot.head.floor > a.head + 1
    {
        let voids = [a.voids.as_slice(), hot.head.conversation.voids.as_slice()].concat();
        look.stranded.extend(
            (a.head + 1..hot.head.floor.min(hot.head.conversation.head_seq + 1)).filter(|seq| !covers(&voids, *seq)).take(SAME_MAX),
        );
    }
    look.found.extend(look_at_keys(stores, id, &hot).await?);
    Ok(look)
}

async fn messages(stores: &Stores, id: &ConversationId, seqs: &[Seq]) -> Result<BTreeMap<Seq, Message>, ArchiveStop> {
    let mut found = BTreeMap::new();
    for some in seqs.chunks(MESSAGES_AT_ONCE) {
        found.extend(stores.archive.messages_at(id, some).await?.into_iter().map(|message| (message.seq, message)));
    }
    Ok(found)
}

fn judge_lease(id: &ConversationId, hot: &Inspected, archived: Option<&AuditedConversation>) -> Vec<Finding> {
    let (head, next) = (hot.head.conversation.head_seq, hot.next);
    let mut found = Vec::new();
    let mut voids = hot.head.conversation.voids.clone();
    voids.extend(archived.iter().flat_map(|a| a.voids.iter().copied()));
    let wrong =
        Finding::of(Code::NextWrong, id).note(format!("next {next}, head {head}, lease {} to {}", hot.head.lease_from, hot.head.lease_to));
    if next <= head || next < hot.head.lease_from || next > hot.head.lease_to + 1 || (hot.head.made && next_after(head, &voids) < next) {
        found.push(wrong);
    }
    if let Some(a) = archived {
        let known = a.lease.is_some_and(|(from, to, installed, epoch)| {
            from == hot.head.lease_from && to >= hot.head.lease_to && epoch == hot.head.lease_epoch && (installed || !hot.head.open)
        });
        // While it is being cooled its lease has ended already.
        if !known && hot.head.closing.is_none() {
            found.push(Finding::of(Code::LeaseUnknown, id).at(hot.head.lease_from).note(format!("to {}", hot.head.lease_to)));
        }
        if a.head > head {
            found.push(Finding::of(Code::HeadBelowArchive, id).note(format!("{head} below {}", a.head)));
        }
        if a.rev > hot.head.conversation.rev.max(hot.head.lease_epoch << 32) {
            found.push(Finding::of(Code::RevBelowArchive, id).note(format!("{} below {}", hot.head.conversation.rev, a.rev)));
        }
        for (from, to) in &a.voids {
            if !hot.head.conversation.voids.iter().any(|(f, t)| f <= from && to <= t) {
                found.push(Finding::of(Code::VoidsDiffer, id).at(*from));
            }
        }
    }
    found
}

fn judge_facts(id: &ConversationId, hot: &Inspected, archived: Option<&AuditedConversation>, settled: bool) -> Vec<Finding> {
    let c = &hot.head.conversation;
    let mut found = Vec::new();
    if c.member_count != hot.members.len() as u64 {
        found.push(Finding::of(Code::MemberCount, id).note(format!("{} for {}", c.member_count, hot.members.len())));
    }
    let owners: Vec<&str> = hot.members.values().filter(|m| m.role == Role::Owner).map(|m| m.user.as_str()).collect();
    let owned = id.kind() == Kind::Group && !c.dissolved;
    if owned && owners.len() != 1 {
        found.push(Finding::of(Code::OwnerCount, id).note(format!("{} owners in Redis", owners.len())));
    }
    let mismatch = if owned {
        owners.len() == 1 && c.owner.as_ref().map(|o| o.as_str()) != owners.first().copied()
    } else {
        c.owner.is_some() || !owners.is_empty() || (c.dissolved && !hot.members.is_empty())
    };
    if mismatch {
        found.push(Finding::of(Code::OwnerMismatch, id).note("in Redis"));
    }
    if id.kind() == Kind::Single {
        let pair = c.pair.as_ref().is_some_and(|(low, high)| {
            hot.members.len() == 2
                && hot.members.contains_key(low.as_str())
                && hot.members.contains_key(high.as_str())
                && ConversationId::of_pair(low, high).as_ref() == Ok(id)
        });
        if !pair {
            found.push(Finding::of(Code::PairWrong, id).note("in Redis"));
        }
    }
    for (user, mark) in hot.marks.iter().filter(|(_, mark)| **mark > c.head_seq) {
        found.push(Finding::of(Code::MarkBeyondHead, id).at(*mark).by(user).about("redis").note(format!("head {}", c.head_seq)));
    }
    for member in hot.members.values() {
        if member.joined_seq > c.head_seq {
            found.push(Finding::of(Code::JoinBeyondHead, id).at(member.joined_seq).by(member.user.as_str()));
        }
        if member.preferences.cleared_to > c.head_seq {
            found.push(Finding::of(Code::ClearedBeyondHead, id).at(member.preferences.cleared_to).by(member.user.as_str()));
        }
        let mark = hot.marks.get(member.user.as_str()).copied().unwrap_or(0);
        if let Some(old) = archived.and_then(|a| a.marks.get(member.user.as_str()))
            && *old > mark
        {
            found.push(Finding::of(Code::MarkMovedBack, id).by(member.user.as_str()).note(format!("{mark} below {old}")));
        }
    }
    let Some(a) = archived.filter(|a| settled && a.told) else { return found };
    let users: BTreeSet<&String> = hot.members.keys().chain(a.members.keys()).collect();
    for user in users {
        let here = hot.members.get(user).map(|m| m.role == Role::Owner);
        if here != a.members.get(user).copied() {
            found.push(Finding::of(Code::MembersDiffer, id).by(user));
        }
    }
    if c.title != a.title || c.owner.as_ref().map(ToString::to_string) != a.owner || c.dissolved != a.dissolved {
        found.push(Finding::of(Code::FactsDiffer, id));
    }
    found
}

fn judge_window(id: &ConversationId, hot: &Inspected) -> Vec<Finding> {
    let c = &hot.head.conversation;
    let mut found = Vec::new();
    let unreadable = |seq: Seq| hot.unreadable.contains(&format!("window {seq}"));
    for seq in hot.from..=c.head_seq {
        match hot.messages.get(&seq) {
            None if !covers(&c.voids, seq) && !unreadable(seq) => found.push(Finding::of(Code::WindowHole, id).at(seq)),
            Some(message) if hot.revs.get(&seq) != Some(&message.rev) => found.push(Finding::of(Code::RevIndexWrong, id).at(seq)),
            _ => {}
        }
        if found.len() >= SAME_MAX {
            break;
        }
    }
    let strange = |seq: &Seq| *seq > c.head_seq || (*seq >= hot.from && !hot.messages.contains_key(seq) && !unreadable(*seq));
    let below = |seq: &Seq| *seq < hot.head.floor && !hot.amended.contains(seq);
    let all_amended = (hot.amended.len() as u64) < ENTRIES_MAX;
    let stale = hot.rev_index.iter().filter(|seq| strange(seq) || (all_amended && below(seq)));
    found.extend(stale.take(SAME_MAX).map(|seq| Finding::of(Code::RevIndexWrong, id).at(*seq)));
    found
}

/// Whether a message never counts as unread.
#[must_use]
pub fn is_uncounted(message: &Message) -> bool {
    message.kind == MessageKind::System || message.deleted_at.is_some()
}

fn judge_uncounted(id: &ConversationId, hot: &Inspected, archived: &[Seq]) -> Vec<Finding> {
    let mut found: Vec<Finding> = Vec::new();
    let mut wrong = |seq: Seq, note: &str| found.push(Finding::of(Code::UnreadWrong, id).at(seq).note(note));
    if (hot.uncounted.len() as u64) >= ENTRIES_MAX || archived.len() as u64 >= ROWS_MAX {
        return found;
    }
    for (seq, message) in &hot.messages {
        if is_uncounted(message) != hot.uncounted.contains(seq) {
            wrong(*seq, "in the window");
        }
    }
    let archived: BTreeSet<Seq> = archived.iter().copied().collect();
    let left_out = archived.difference(&hot.uncounted).filter(|seq| **seq < hot.from);
    left_out.take(SAME_MAX).for_each(|seq| wrong(*seq, "left out"));
    let strange = hot.uncounted.difference(&archived).filter(|seq| !hot.messages.contains_key(seq) && !hot.amended.contains(seq));
    strange.take(SAME_MAX).for_each(|seq| wrong(*seq, "put in"));
    found
}

/// Mentions that count: those behind the watermark and what was cleared are left lying and harm nobody.
fn unread_mentions(hot: &Inspected) -> impl Iterator<Item = &(String, Seq)> {
    hot.mentions.iter().filter(|(user, seq)| {
        let cleared = hot.members.get(user).map_or(0, |m| m.preferences.cleared_to);
        *seq > hot.marks.get(user).copied().unwrap_or(0).max(cleared)
    })
}

fn judge_mentions(id: &ConversationId, hot: &Inspected, older: &BTreeMap<Seq, Message>) -> Vec<Finding> {
    let names = |user: &str, seq: &Seq| {
        let message = hot.messages.get(seq).or_else(|| older.get(seq));
        let waits = *seq < hot.from && hot.amended.contains(seq);
        waits || message.is_some_and(|m| m.deleted_at.is_none() && m.mentions.iter().any(|named| named.as_str() == user))
    };
    let wrong = unread_mentions(hot).filter(|(user, seq)| !hot.members.contains_key(user) || !names(user, seq));
    wrong.take(SAME_MAX).map(|(user, seq)| Finding::of(Code::MentionWrong, id).at(*seq).by(user)).collect()
}

fn judge_missing_mentions(id: &ConversationId, hot: &Inspected, archived: &[(String, Seq, u64)]) -> Vec<Finding> {
    if (hot.mentions.len() as u64) >= ENTRIES_MAX {
        return Vec::new();
    }
    let in_window = hot
        .messages
        .values()
        .filter(|m| m.deleted_at.is_none())
        .flat_map(|m| m.mentions.iter().filter(|named| **named != m.sender).map(|named| (named.to_string(), m.seq)));
    let before =
        archived.iter().filter(|(_, seq, _)| *seq < hot.from && !hot.amended.contains(seq)).map(|(user, seq, _)| (user.clone(), *seq));
    let unread = |(user, seq): &(String, Seq)| {
        hot.members.get(user).is_some_and(|m| *seq > m.joined_seq.max(hot.marks.get(user).copied().unwrap_or(0)))
    };
    let missing = in_window.chain(before).filter(|named| unread(named) && !hot.mentions.contains(named));
    missing.take(SAME_MAX).map(|(user, seq)| Finding::of(Code::MentionMissing, id).at(seq).by(&user)).collect()
}

fn judge_row(id: &ConversationId, message: &Message, row: &Message) -> Option<Finding> {
    let at = |code| Finding::of(code, id).at(message.seq);
    if row.id != message.id {
        return Some(at(Code::NumberTwice).note(format!("{} in Redis, {} in Postgres", message.id, row.id)));
    }
    if row.rev > message.rev {
        return Some(at(Code::RevBelowArchive).note(format!("{} below {}", message.rev, row.rev)));
    }
    // Structured data passes through two writers of JSON, which may write one number in two ways; the fingerprint of what was taken back
    // may be gone in one of them.
    let fingerprint = if message.deleted_at.is_some() { message.fingerprint.clone() } else { row.fingerprint.clone() };
    let same =
        Message { data: message.data.clone(), fingerprint, ..row.clone() } == *message && row.data.is_some() == message.data.is_some();
    (row.rev == message.rev && !same).then(|| at(Code::MessageDiffers))
}

async fn look_at_keys(stores: &Stores, id: &ConversationId, hot: &Inspected) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = Vec::new();
    let decided = |key: &ClientKey| hot.keys_all || key.stamped_at().is_some_and(|at| at > hot.head.keys_since);
    let wanted: Vec<(Seq, String, String)> = hot
        .messages
        .values()
        .filter_map(|m| m.client_id.as_ref().filter(|key| decided(key)).map(|key| (m.seq, m.sender.to_string(), key.to_string())))
        .collect();
    if !wanted.is_empty() {
        let names: Vec<(String, String)> = wanted.iter().map(|(_, sender, key)| (sender.clone(), key.clone())).collect();
        let known = known_keys(&stores.link, &stores.keys, id, &names).await?;
        let missing = wanted.into_iter().zip(known).filter(|(_, known)| !known);
        found.extend(missing.map(|((seq, sender, key), _)| Finding::of(Code::KeyMissing, id).at(seq).by(&sender).about(key)));
    }
    for generation in [0, 1] {
        let mut cursor = "0".to_owned();
        loop {
            let (next, keys) = scan_keys(&stores.link, &stores.keys, id, generation, &cursor).await?;
            let older: Vec<Seq> = keys.iter().filter_map(|key| key.seq).filter(|seq| !hot.messages.contains_key(seq)).collect();
            let older = messages(stores, id, &older).await?;
            let mut nowhere = Vec::new();
            for key in keys {
                let of = |code| Finding::of(code, id).by(&key.sender).about(key.client_id.clone());
                let Some(seq) = key.seq else {
                    found.push(of(Code::Unreadable));
                    continue;
                };
                match hot.messages.get(&seq).or_else(|| older.get(&seq)) {
                    Some(message) => {
                        let same = message.sender.as_str() == key.sender
                            && message.client_id.as_ref().is_some_and(|c| c.as_str() == key.client_id);
                        if !same {
                            found.push(of(Code::KeyElsewhere).at(seq));
                        }
                    }
                    None => nowhere.push((seq, of(Code::KeyWithoutMessage).at(seq))),
                }
            }
            if !nowhere.is_empty() {
                // Sent since the window was read.
                let seqs: Vec<Seq> = nowhere.iter().map(|(seq, _)| *seq).collect();
                let there = in_window(&stores.link, &stores.keys, id, &seqs).await?;
                found.extend(nowhere.into_iter().zip(there).filter(|(_, there)| !there).map(|((_, finding), _)| finding));
            }
            if next == "0" || found.len() > SAME_MAX * 5 {
                break;
            }
            cursor = next;
        }
    }
    Ok(found)
}
