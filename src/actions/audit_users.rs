//! Audits users: their logs against the archive and against themselves, their lists against their memberships.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::Stores;
use super::archive_outbox::ArchiveStop;
use crate::domain::audit::{Code, Finding, still_there};
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::position::EntryId;
use crate::redis::audit_keys::{in_window, is_hot_member};
use crate::redis::inspect_log::{InspectedLog, LIST_MAX, inspect_log};
use crate::redis::read_shard::read_shard;

/// Pauses between looks at a suspicion, in milliseconds.
const PAUSES_MS: [u64; 5] = [50, 150, 400, 900, 1_500];
/// Entries of a log read at once.
const PAGE: u64 = 500;
/// Users looked at at the same time.
const AT_ONCE: usize = 4;
/// Findings in one user's log.
const FINDINGS_MAX: usize = 200;

/// Audits these users.
///
/// # Errors
/// When a store does not answer.
pub async fn audit_users(stores: &Stores, users: &[UserId]) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = look_at_all(stores, users.iter().cloned()).await?;
    for pause in PAUSES_MS {
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        let suspects: BTreeSet<UserId> = found.iter().filter_map(|f| UserId::parse(f.user.as_deref()?).ok()).collect();
        found = still_there(&found, look_at_all(stores, suspects.into_iter()).await?);
    }
    Ok(found)
}

async fn look_at_all(stores: &Stores, users: impl Iterator<Item = UserId>) -> Result<Vec<Finding>, ArchiveStop> {
    let looks: Vec<_> = users.map(|user| async move { look(stores, &user).await }).collect();
    let looks: Vec<Vec<Finding>> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
    Ok(looks.into_iter().flatten().collect())
}

async fn look(stores: &Stores, user: &UserId) -> Result<Vec<Finding>, ArchiveStop> {
    // Before the list: a membership that is archived is in the list, if its shard's dispatch is not behind the archive.
    let memberships = stores.archive.conversation_ids_of(user).await?;
    let Some(mut log) = inspect_log(&stores.link, &stores.keys, user, None, PAGE, true).await? else {
        return Ok(vec![Finding::new(Code::LogBounds).by(user.as_str()).note("of the wrong type or form")]);
    };
    let mut found = judge_bounds(user, &log);
    if log.list_is_whole && (log.list.len() as u64) < LIST_MAX {
        let memberships: BTreeSet<ConversationId> = memberships.into_iter().map(|(id, _)| id).collect();
        found.extend(look_at_list(stores, user, &memberships, &log.list).await?);
    }
    let mut told = Told::default();
    loop {
        let page = std::mem::take(&mut log.entries);
        found.extend(judge_order(stores, user, &page, &mut told).await?);
        found.extend(look_at_pointers(stores, user, &page).await?);
        let Some((last, _)) = page.last() else { return Ok(found) };
        if (page.len() as u64) < PAGE || found.len() > FINDINGS_MAX {
            return Ok(found);
        }
        match inspect_log(&stores.link, &stores.keys, user, Some(*last), PAGE, false).await? {
            Some(next) => log = next,
            None => return Ok(found),
        }
    }
}

fn judge_bounds(user: &UserId, log: &InspectedLog) -> Vec<Finding> {
    let wrong = |note: &str| vec![Finding::new(Code::LogBounds).by(user.as_str()).note(note)];
    let (Some(last), Some(trimmed)) = (log.last, log.trimmed) else {
        return if log.length > 0 { wrong("it does not say where it ends") } else { Vec::new() };
    };
    if log.newest.is_some_and(|newest| newest != last) || (log.newest.is_none() && last != trimmed) {
        return wrong("it ends elsewhere than it says");
    }
    if log.entries.first().is_some_and(|(first, _)| *first <= trimmed) {
        return wrong("it holds what it says was dropped");
    }
    Vec::new()
}

async fn look_at_list(
    stores: &Stores,
    user: &UserId,
    memberships: &BTreeSet<ConversationId>,
    list: &[ConversationId],
) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = Vec::new();
    let listed: BTreeSet<&ConversationId> = list.iter().collect();
    for id in memberships.iter().filter(|id| !listed.contains(id)) {
        let shard = read_shard(&stores.link, stores.keys.shard_of(id)).await?;
        if shard.entries == 0 || shard.dispatched >= shard.archived {
            found.push(Finding::of(Code::IndexMissing, id).by(user.as_str()));
        }
    }
    for id in list.iter().filter(|id| !memberships.contains(id)) {
        let member = match is_hot_member(&stores.link, &stores.keys, id, user).await? {
            Some(member) => member,
            None => stores.archive.membership(id, user).await?.is_some(),
        };
        let shard = read_shard(&stores.link, stores.keys.shard_of(id)).await?;
        if !member && (shard.entries == 0 || (shard.dispatched >= shard.last && shard.archived >= shard.last)) {
            found.push(Finding::of(Code::IndexStale, id).by(user.as_str()));
        }
    }
    Ok(found)
}

/// What a log told of messages so far.
#[derive(Debug, Default)]
struct Told {
    /// The last number, by conversation.
    last: HashMap<ConversationId, Seq>,
    /// Numbers from which a message was taken away: the one that stands there is told of again.
    renumbered: BTreeSet<(ConversationId, Seq)>,
}

fn old_seq(pointer: &Pointer) -> Option<Seq> {
    let facts: serde_json::Value = serde_json::from_str(pointer.data.as_deref()?).ok()?;
    facts.get("old_seq")?.as_u64()
}

/// Messages of a conversation come once and in order, and none between two is left out while the membership lasts.
async fn judge_order(
    stores: &Stores,
    user: &UserId,
    page: &[(EntryId, Option<Pointer>)],
    told: &mut Told,
) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = Vec::new();
    for (entry, pointer) in page {
        let Some(pointer) = pointer else {
            found.push(Finding::new(Code::Unreadable).by(user.as_str()).about(entry.to_string()));
            continue;
        };
        let id = &pointer.conversation;
        if pointer.ends_membership_of(user) || matches!(pointer.kind, EventType::Resync | EventType::ConversationImported) {
            told.last.remove(id);
        }
        // It stands above everything; what was found on its old number is told of next, out of order.
        if pointer.kind == EventType::MessageResequenced {
            told.last.entry(id.clone()).and_modify(|last| *last = pointer.seq.max(*last));
            told.renumbered.extend(old_seq(pointer).map(|old| (id.clone(), old)));
        }
        if pointer.kind != EventType::MessageCreated || told.renumbered.remove(&(id.clone(), pointer.seq)) {
            continue;
        }
        match told.last.insert(id.clone(), pointer.seq) {
            Some(before) if pointer.seq <= before => found.push(Finding::of(Code::LogDisordered, id).at(pointer.seq).by(user.as_str())),
            Some(before) if pointer.seq > before + 1 => {
                if let Some(seq) = stores.archive.message_between(id, before + 1, pointer.seq - 1).await? {
                    found.push(Finding::of(Code::LogHole, id).at(seq).by(user.as_str()));
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

/// What the pointers of a page lead to is in the archive or in Redis.
async fn look_at_pointers(stores: &Stores, user: &UserId, page: &[(EntryId, Option<Pointer>)]) -> Result<Vec<Finding>, ArchiveStop> {
    let places: BTreeSet<(ConversationId, Seq)> =
        page.iter().filter_map(|(_, p)| p.as_ref()).filter(|p| p.seq > 0).map(|p| (p.conversation.clone(), p.seq)).collect();
    let places: Vec<(ConversationId, Seq)> = places.into_iter().collect();
    if places.is_empty() {
        return Ok(Vec::new());
    }
    let mut missing: BTreeMap<&ConversationId, Vec<Seq>> = BTreeMap::new();
    for place in stores.archive.nowhere(&places).await? {
        if let Some((id, seq)) = places.get(place) {
            missing.entry(id).or_default().push(*seq);
        }
    }
    let mut found = Vec::new();
    for (id, seqs) in missing {
        let there = in_window(&stores.link, &stores.keys, id, &seqs).await?;
        let lost = seqs.iter().zip(there).filter(|(_, there)| !there);
        found.extend(lost.map(|(seq, _)| Finding::of(Code::LogPointerLost, id).at(*seq).by(user.as_str())));
    }
    Ok(found)
}
