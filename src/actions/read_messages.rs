//! Pages of a conversation's messages: Redis first, then Postgres; what one may see, and nothing above the head Redis named.

use std::collections::BTreeMap;

use super::Stores;
use super::open_epoch::open_shard;
use super::read_conversation::{archived_facts, told_to_strangers};
use crate::domain::conversation::Conversation;
use crate::domain::ids::{ConversationId, Rev, Seq};
use crate::domain::membership::{Member, Reader};
use crate::domain::message::Message;
use crate::domain::refusal::Refusal;
use crate::redis::read_messages::{HotMessages, MessagesRead, Which, read_messages};

/// Most messages that one read of the window gives.
const READ_MAX: usize = 200;

/// Where a page lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The newest.
    Latest,
    /// Below this seq.
    Before(Seq),
    /// Above this seq.
    After(Seq),
    /// This seq and its neighbours.
    Around(Seq),
}

/// A page, in ascending seq.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The messages.
    pub messages: Vec<Message>,
    /// Whether there are visible ones below.
    pub has_more_before: bool,
    /// Whether there are ones above.
    pub has_more_after: bool,
    /// The conversation's head.
    pub head_seq: Seq,
    /// Voids among and beside these messages.
    pub voids: Vec<(Seq, Seq)>,
}

/// What changed since a rev, in ascending rev.
#[derive(Clone, Debug, PartialEq)]
pub struct Changes {
    /// The messages as they are now.
    pub messages: Vec<Message>,
    /// Where to ask next.
    pub next_rev: Rev,
    /// Whether there is more.
    pub has_more: bool,
    /// The conversation's head.
    pub head_seq: Seq,
    /// All voids up to the head.
    pub voids: Vec<(Seq, Seq)>,
}

/// Messages for events.
#[derive(Clone, Debug, PartialEq)]
pub enum Visible {
    /// Those of the asked ones that exist and may be seen.
    Messages(Vec<Message>),
    /// The user is no member.
    NotMember,
}

/// Reads a page of at most `limit` messages.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, [`Refusal::Dissolved`] for who was one of a group that has ended.
pub async fn page<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    place: Place,
    limit: usize,
) -> Result<Page, Refusal> {
    let reader = reader.into();
    let found = page_of(stores, reader, id, place, limit).await;
    told_to_strangers(stores, reader, id, found).await
}

async fn page_of(stores: &Stores, reader: Reader<'_>, id: &ConversationId, place: Place, limit: usize) -> Result<Page, Refusal> {
    let (below, above) = match place {
        Place::Latest => (Some((Seq::MAX, limit)), None),
        Place::Before(seq) => (Some((seq, limit)), None),
        Place::After(seq) => (None, Some(seq.saturating_add(1))),
        Place::Around(seq) => (Some((seq, limit / 2)), Some(seq.max(1))),
    };
    let mut messages = Vec::new();
    let (mut more_before, mut more_after) = (None, None);
    let mut facts = None;
    if let Some((before, count)) = below {
        let slice = down(stores, reader, id, before, count).await?;
        more_before = Some(slice.more);
        messages = slice.messages;
        facts = Some((slice.conversation, slice.lowest));
    }
    if let Some(from) = above {
        let slice = up(stores, reader, id, from, limit - messages.len()).await?;
        more_after = Some(slice.more);
        messages.extend(slice.messages);
        facts = Some((slice.conversation, slice.lowest));
    }
    let Some((conversation, lowest)) = facts else { return Err(Refusal::NotFound) };
    let head = conversation.head_seq;
    let has_more_before = more_before.unwrap_or(matches!(place, Place::After(seq) if seq >= lowest && head >= lowest));
    let has_more_after = more_after.unwrap_or(matches!(place, Place::Before(seq) if seq <= head));
    let from = if has_more_before { messages.first().map_or(head, |m| m.seq) } else { 1 };
    let to = if has_more_after { messages.last().map_or(head, |m| m.seq) } else { head };
    // A void that touches the page's edge belongs to it: else the client sees a hole between two pages.
    let voids = clipped(&conversation, head).into_iter().filter(|(a, b)| *b + 1 >= from && *a <= to + 1).collect();
    Ok(Page { messages, has_more_before, has_more_after, head_seq: head, voids })
}

/// Reads what changed after `since`, at most `limit` messages.
///
/// # Errors
/// As [`page`].
pub async fn changes<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    since: Rev,
    limit: usize,
) -> Result<Changes, Refusal> {
    let reader = reader.into();
    let found = changes_of(stores, reader, id, since, limit.min(READ_MAX)).await;
    told_to_strangers(stores, reader, id, found).await
}

async fn changes_of(stores: &Stores, reader: Reader<'_>, id: &ConversationId, since: Rev, limit: usize) -> Result<Changes, Refusal> {
    let hot = read(stores, reader, id, &Which::SinceRev(since), limit).await?;
    let (conversation, member, recent, floor) = match hot {
        Some(hot) => (hot.head.conversation, hot.member, hot.messages, hot.head.floor),
        None => {
            let (conversation, member) = archived_facts(stores, reader, id).await?.ok_or(Refusal::NotFound)?;
            let beyond = conversation.head_seq.saturating_add(1);
            (conversation, member, Vec::new(), beyond)
        }
    };
    let lowest = reader.first_visible_seq(&conversation, member.as_ref()).ok_or(Refusal::NotFound)?;
    let count = u64::try_from(limit).unwrap_or(u64::MAX);
    let archived = if floor > lowest { stores.archive.messages_since_rev(id, since, lowest, count).await? } else { Vec::new() };
    // A full list says nothing about what lies behind its last rev.
    let complete_to = |list: &[Message]| if list.len() >= limit { list.last().map_or(since, |m| m.rev) } else { Rev::MAX };
    let cut = complete_to(&recent).min(complete_to(&archived));
    let mut newest: BTreeMap<Seq, Message> = BTreeMap::new();
    for message in archived.into_iter().chain(recent) {
        if message.seq > conversation.head_seq || message.seq < lowest {
            continue;
        }
        let known = newest.get(&message.seq).map(|m| m.rev);
        if known.is_none_or(|rev| rev < message.rev) {
            newest.insert(message.seq, message);
        }
    }
    let mut messages: Vec<Message> = newest.into_values().filter(|m| m.rev <= cut).collect();
    messages.sort_by_key(|m| m.rev);
    let has_more = cut < Rev::MAX || messages.len() > limit;
    messages.truncate(limit);
    let next_rev = if has_more { messages.last().map_or(cut, |m| m.rev) } else { conversation.rev.max(since) };
    let voids = clipped(&conversation, conversation.head_seq);
    Ok(Changes { messages, next_rev, has_more, head_seq: conversation.head_seq, voids })
}

/// Reads one message.
///
/// # Errors
/// As [`page`], and [`Refusal::NotFound`] for what is not there or not visible.
pub async fn message<'a>(stores: &Stores, reader: impl Into<Reader<'a>>, id: &ConversationId, seq: Seq) -> Result<Message, Refusal> {
    let reader = reader.into();
    let found = match messages_for(stores, reader, id, &[seq]).await? {
        Visible::Messages(mut messages) => messages.pop().ok_or(Refusal::NotFound),
        Visible::NotMember => Err(Refusal::NotFound),
    };
    told_to_strangers(stores, reader, id, found).await
}

/// Reads these messages as they are now, for one user's events; in no particular order.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn messages_for<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    seqs: &[Seq],
) -> Result<Visible, Refusal> {
    let reader = reader.into();
    let mut found = Vec::with_capacity(seqs.len());
    for chunk in seqs.chunks(READ_MAX) {
        let (conversation, member, mut messages) = match read(stores, reader, id, &Which::At(chunk.to_vec()), chunk.len()).await? {
            Some(hot) => (hot.head.conversation, hot.member, hot.messages),
            None => match archived_facts(stores, reader, id).await? {
                Some((conversation, member)) => (conversation, member, Vec::new()),
                None => return Ok(Visible::NotMember),
            },
        };
        let Some(lowest) = reader.first_visible_seq(&conversation, member.as_ref()) else { return Ok(Visible::NotMember) };
        let is_void = |seq: Seq| conversation.voids.iter().any(|(from, to)| (*from..=*to).contains(&seq));
        let missing: Vec<Seq> = chunk
            .iter()
            .copied()
            .filter(|s| *s >= lowest && *s <= conversation.head_seq && !is_void(*s) && !messages.iter().any(|m| m.seq == *s))
            .collect();
        if !missing.is_empty() {
            messages.extend(stores.archive.messages_at(id, &missing).await?);
        }
        messages.retain(|m| m.seq >= lowest);
        found.extend(messages);
    }
    Ok(Visible::Messages(found))
}

/// Messages in ascending seq, and whether there are more in the direction of reading.
struct Slice {
    messages: Vec<Message>,
    more: bool,
    conversation: Conversation,
    lowest: Seq,
}

async fn down(stores: &Stores, reader: Reader<'_>, id: &ConversationId, before: Seq, limit: usize) -> Result<Slice, Refusal> {
    let from = before.saturating_sub(1).min(crate::domain::ids::INTEGER_MAX);
    let (conversation, member, mut messages, floor, amended) = match read(stores, reader, id, &Which::Down(from), limit + 1).await? {
        Some(hot) => (hot.head.conversation, hot.member, hot.messages, hot.head.floor, hot.amended),
        None => cold(stores, reader, id).await?,
    };
    let lowest = reader.first_visible_seq(&conversation, member.as_ref()).ok_or(Refusal::NotFound)?;
    messages.retain(|m| m.seq >= lowest);
    messages.reverse();
    let wanted = limit + 1;
    if messages.len() < wanted && floor > lowest {
        let rest = u64::try_from(wanted - messages.len()).unwrap_or(0);
        let mut older = stores.archive.messages_before(id, floor.min(from.saturating_add(1)), lowest, rest).await?;
        amend(&mut older, amended);
        older.append(&mut messages);
        messages = older;
    }
    let more = messages.len() > limit;
    messages.drain(..messages.len().saturating_sub(limit));
    Ok(Slice { messages, more, conversation, lowest })
}

async fn up(stores: &Stores, reader: Reader<'_>, id: &ConversationId, from: Seq, limit: usize) -> Result<Slice, Refusal> {
    let from = from.min(crate::domain::ids::INTEGER_MAX);
    let (conversation, member, recent, floor, amended) = match read(stores, reader, id, &Which::Up(from), limit + 1).await? {
        Some(hot) => (hot.head.conversation, hot.member, hot.messages, hot.head.floor, hot.amended),
        None => cold(stores, reader, id).await?,
    };
    let lowest = reader.first_visible_seq(&conversation, member.as_ref()).ok_or(Refusal::NotFound)?;
    if from < lowest {
        // Begun again where the caller's sight begins: what lies below would fill the page and then be left out of it.
        return Box::pin(up(stores, reader, id, lowest, limit)).await;
    }
    let start = from;
    let mut messages = Vec::new();
    if start < floor {
        let highest = floor.saturating_sub(1).min(conversation.head_seq);
        messages = stores.archive.messages_after(id, start - 1, highest, u64::try_from(limit + 1).unwrap_or(u64::MAX)).await?;
        amend(&mut messages, amended);
    }
    messages.extend(recent.into_iter().filter(|m| m.seq >= lowest));
    let more = messages.len() > limit;
    messages.truncate(limit);
    Ok(Slice { messages, more, conversation, lowest })
}

/// A cold conversation is a window that begins above its head.
async fn cold(
    stores: &Stores,
    reader: Reader<'_>,
    id: &ConversationId,
) -> Result<(Conversation, Option<Member>, Vec<Message>, Seq, Vec<Message>), Refusal> {
    let (conversation, member) = archived_facts(stores, reader, id).await?.ok_or(Refusal::NotFound)?;
    let floor = conversation.head_seq.saturating_add(1);
    Ok((conversation, member, Vec::new(), floor, Vec::new()))
}

/// Puts changes that the archive may not have yet in the place of what it had.
fn amend(archived: &mut [Message], amended: Vec<Message>) {
    for newer in amended {
        if let Some(older) = archived.iter_mut().find(|m| m.seq == newer.seq && m.rev < newer.rev) {
            *older = newer;
        }
    }
}

/// Reads the window; `None` when the conversation is cold. For who has to be a member and is none there is nothing in it.
async fn read(
    stores: &Stores,
    reader: Reader<'_>,
    id: &ConversationId,
    which: &Which,
    limit: usize,
) -> Result<Option<Box<HotMessages>>, Refusal> {
    let member = reader.must_be_member(id.kind());
    for _ in 0..2 {
        match read_messages(&stores.link, &stores.keys, id, member, which, limit).await? {
            // A pair's shell: nobody can see what was never made. The archive says the same.
            MessagesRead::Here(hot) if !hot.head.made => return Ok(None),
            MessagesRead::Here(hot) => return Ok(Some(hot)),
            MessagesRead::Cold => return Ok(None),
            MessagesRead::StaleEpoch => {
                open_shard(stores, stores.keys.shard_of(id)).await?;
            }
        }
    }
    Err(Refusal::Unavailable("the live store is changing"))
}

fn clipped(conversation: &Conversation, head: Seq) -> Vec<(Seq, Seq)> {
    conversation.voids.iter().filter(|(from, _)| *from <= head).map(|(from, to)| (*from, (*to).min(head))).collect()
}
