//! Audits conversations: the archive by itself, then Redis against it. A suspicion is looked at again a few times, and only what lasts is
//! a finding: a living system must give none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use futures_util::{StreamExt, stream};

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::audit_hot::{HotLook, look_at_hot};
use crate::domain::audit::{Code, Finding, still_there, without};
use crate::domain::ids::{ConversationId, Seq, ShardId};
use crate::domain::refusal::Refusal;
use crate::postgres::audit_facts::AuditedConversation;
use crate::postgres::audit_messages::Span;
use crate::redis::read_aside::{AsideReason, read_aside};

/// Pauses between looks at a suspicion, in milliseconds.
const PAUSES_MS: &[u64] = &[50, 150, 400, 900, 1_500];
/// The same where somebody waits for an answer.
const SHORT_PAUSES_MS: &[u64] = &[50, 150, 300, 500];
/// Numbers that one statement looks at.
const SPAN: Seq = 20_000;
/// Conversations looked at in Redis at the same time.
const AT_ONCE: usize = 8;
/// Entries that stand aside, read at once.
const ASIDE_PAGE: u64 = 200;

/// What an audit of one conversation came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ConversationAudit {
    /// The last number given out, as Redis has it, else the archive.
    pub head_seq: Seq,
    /// The newest message in the archive.
    pub archived_to: Seq,
    /// Numbers given out that are above the newest one in the archive.
    pub backlog: u64,
    /// Ranges that are void.
    pub voids: Vec<(Seq, Seq)>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

/// Audits one conversation for a moderator.
///
/// # Errors
/// [`Refusal::Forbidden`] for all but moderators; [`Refusal::NotFound`] when there is no such conversation; [`Refusal::Unavailable`] when a
/// store is away.
pub async fn moderators_audit(stores: &Stores, admin: bool, id: &ConversationId) -> Result<ConversationAudit, Refusal> {
    if !admin {
        return Err(Refusal::Forbidden("only moderators audit conversations"));
    }
    audit_conversation(stores, id).await?.ok_or(Refusal::NotFound)
}

/// Audits one conversation; `None` when there is no such conversation.
///
/// # Errors
/// When a store does not answer.
pub async fn audit_conversation(stores: &Stores, id: &ConversationId) -> Result<Option<ConversationAudit>, ArchiveStop> {
    let findings = look_again(stores, std::slice::from_ref(id), SHORT_PAUSES_MS).await?;
    let archived = stores.archive.audited(std::slice::from_ref(id)).await?.pop();
    let hot = look_at_hot(stores, id, archived.as_ref()).await?.head.filter(|head| *head > 0 || archived.is_some());
    if archived.is_none() && hot.is_none() && findings.is_empty() {
        return Ok(None);
    }
    let archived_to = archived.as_ref().map_or(0, |a| a.newest);
    let head_seq = hot.unwrap_or(0).max(archived.as_ref().map_or(0, |a| a.head));
    Ok(Some(ConversationAudit {
        head_seq,
        archived_to,
        backlog: head_seq.saturating_sub(archived_to),
        voids: archived.map(|a| a.voids).unwrap_or_default(),
        findings,
    }))
}

/// Audits these conversations.
///
/// # Errors
/// When a store does not answer.
pub async fn audit_conversations(stores: &Stores, ids: &[ConversationId]) -> Result<Vec<Finding>, ArchiveStop> {
    look_again(stores, ids, PAUSES_MS).await
}

async fn look_again(stores: &Stores, ids: &[ConversationId], pauses_ms: &[u64]) -> Result<Vec<Finding>, ArchiveStop> {
    let mut found = look(stores, ids).await?;
    for pause in pauses_ms {
        if found.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(*pause)).await;
        let suspects: BTreeSet<ConversationId> = found.iter().filter_map(|f| f.conversation.clone()).collect();
        let suspects: Vec<ConversationId> = suspects.into_iter().collect();
        found = still_there(&found, look(stores, &suspects).await?);
    }
    Ok(found)
}

async fn look(stores: &Stores, ids: &[ConversationId]) -> Result<Vec<Finding>, ArchiveStop> {
    let archived: HashMap<ConversationId, AuditedConversation> =
        stores.archive.audited(ids).await?.into_iter().map(|a| (a.id.clone(), a)).collect();
    let mut found = stores.archive.audit_facts(ids).await?;
    found.extend(archived.values().flat_map(|a| a.misnamed(stores.keys.shards)));
    for spans in pages(ids.iter().filter_map(|id| archived.get(id))) {
        found.extend(stores.archive.audit_messages(&spans).await?);
    }
    let looks = ids.iter().map(|id| {
        let archived = archived.get(id);
        async move { Ok::<_, ArchiveStop>((id.clone(), look_at_hot(stores, id, archived).await?)) }
    });
    let looks: Vec<Result<(ConversationId, HotLook), ArchiveStop>> =
        stream::iter(looks.collect::<Vec<_>>()).buffer_unordered(AT_ONCE).collect().await;
    let mut settled = BTreeSet::new();
    for look in looks {
        let (id, look) = look?;
        if look.settled {
            settled.insert(id.clone());
        }
        let stranded = look.stranded.into_iter().map(|seq| Finding {
            to_seq: Some(seq),
            ..Finding::of(Code::Hole, &id).at(seq).note("accepted, and nothing brings it to the archive")
        });
        found.extend(stranded);
        found.extend(look.found);
    }
    // What takes more than one entry of the outbox to be whole is judged when nothing is under way.
    found.retain(|f| {
        let whole = f.conversation.as_ref().is_none_or(|id| settled.contains(id));
        whole
            || !matches!(f.code, Code::OwnerCount | Code::OwnerMismatch | Code::PairWrong | Code::FactsMissing)
            || f.note.ends_with("in Redis")
    });
    excuse(stores, found).await
}

/// Pages of numbers, of several conversations together where they are short.
fn pages<'a>(conversations: impl Iterator<Item = &'a AuditedConversation>) -> Vec<Vec<Span>> {
    let mut pages: Vec<Vec<Span>> = Vec::new();
    let mut room = 0;
    for conversation in conversations {
        let mut after = 0;
        loop {
            let to = conversation.head.min(after + SPAN);
            if room < to - after || pages.is_empty() {
                pages.push(Vec::new());
                room = SPAN;
            }
            room = room.saturating_sub((to - after).max(1));
            if let Some(page) = pages.last_mut() {
                page.push(Span { conversation: conversation.id.clone(), after, to });
            }
            after = to;
            if after >= conversation.head {
                break;
            }
        }
    }
    pages
}

/// Takes away what is explained by entries that Postgres refused and that wait aside: they are told of as such.
async fn excuse(stores: &Stores, found: Vec<Finding>) -> Result<Vec<Finding>, ArchiveStop> {
    let hangs_on =
        |f: &Finding| matches!(f.code, Code::Hole | Code::QuoteBroken | Code::FactsMissing | Code::MembersDiffer | Code::FactsDiffer);
    let shards: BTreeSet<ShardId> =
        found.iter().filter(|f| hangs_on(f)).filter_map(|f| f.conversation.as_ref()).map(|id| stores.keys.shard_of(id)).collect();
    let mut aside: BTreeMap<String, BTreeSet<Seq>> = BTreeMap::new();
    for shard in shards {
        for entry in entries_aside(stores, shard).await? {
            let seqs = aside.entry(entry.conversation).or_default();
            seqs.extend(entry.seq);
        }
    }
    let mut left = Vec::with_capacity(found.len());
    for f in found {
        let waiting = f.conversation.as_ref().and_then(|id| aside.get(id.as_str()));
        match (waiting, f.code) {
            (Some(taken), Code::Hole) => {
                let (from, to) = (f.seq.unwrap_or(0), f.to_seq.or(f.seq).unwrap_or(0));
                left.extend(without(from, to, taken).into_iter().map(|(from, to)| Finding {
                    seq: Some(from),
                    to_seq: Some(to),
                    ..f.clone()
                }));
            }
            (Some(taken), Code::QuoteBroken) if f.to_seq.is_some_and(|seq| taken.contains(&seq)) => {}
            (Some(_), Code::FactsMissing | Code::MembersDiffer | Code::FactsDiffer) => {}
            _ => left.push(f),
        }
    }
    Ok(left)
}

/// An entry that waits aside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its place in the outbox.
    pub entry: String,
    /// Where it happened, as it stands there.
    pub conversation: String,
    /// The message's number.
    pub seq: Option<Seq>,
    /// Why, in a word.
    pub why: &'static str,
}

/// Everything that waits aside in a shard; nothing while the shard has no epoch on its server.
///
/// # Errors
/// When Redis does not answer.
pub async fn entries_aside(stores: &Stores, shard: ShardId) -> Result<Vec<Waiting>, ArchiveStop> {
    let (mut waiting, mut from) = (Vec::new(), "0".to_owned());
    loop {
        let Some(page) = read_aside(&stores.link, shard, &from, ASIDE_PAGE).await? else { return Ok(waiting) };
        for kept in page.entries {
            let field = |name: &str| kept.entry.fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.clone());
            waiting.push(Waiting {
                entry: kept.entry.id.to_string(),
                conversation: field("c").unwrap_or_default(),
                seq: field("q").and_then(|seq| seq.parse().ok()),
                why: match kept.why {
                    AsideReason::Refused => "refused",
                    AsideReason::Conflict => "another message stands on its number or has its key",
                    AsideReason::Unreadable => "unreadable",
                },
            });
        }
        if page.next == "0" {
            return Ok(waiting);
        }
        from = page.next;
    }
}
