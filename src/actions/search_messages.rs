//! Messages that hold some words, newest first, in the caller's own conversations.
//!
//! Postgres names the candidates; each is then read as everybody else reads messages: as it is now, by who is a member now, from where the
//! member may see. So what was edited, deleted, cleared or left a moment ago is not shown, however far archive and index are behind.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::{StreamExt, TryStreamExt, stream};

use super::Stores;
use super::read_conversation::view;
use super::read_messages::{Visible, messages_for};
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::message::{Message, MessageKind};
use crate::domain::refusal::Refusal;
use crate::domain::search_terms::SearchText;
pub use crate::postgres::search::FoundAt;

/// Conversations read at a time for one request.
const READS_AT_ONCE: usize = 16;
/// Candidates looked at for one page. More than that are refused letter by letter only by queries of few letters and much punctuation; the
/// page is then short, and its cursor goes on.
const CANDIDATES_MAX: usize = 1_000;

/// A page, the newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct SearchPage {
    /// The messages.
    pub messages: Vec<Message>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<FoundAt>,
}

/// Finds at most `limit` messages below `after`, in one conversation or in all.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member of `conversation`, [`Refusal::Unavailable`] when a store is away.
pub async fn search_messages(
    stores: &Stores,
    user: &UserId,
    conversation: Option<&ConversationId>,
    text: &SearchText,
    after: Option<FoundAt>,
    limit: usize,
) -> Result<SearchPage, Refusal> {
    if let Some(id) = conversation {
        view(stores, user, id).await?;
    }
    let mut messages = Vec::new();
    let mut after = after;
    let mut looked_at = 0;
    loop {
        // One more than the page holds tells whether there is a next one.
        let wanted = (limit - messages.len() + 1).max(looked_at.min(CANDIDATES_MAX - looked_at));
        let candidates = stores.archive.find_messages(user, conversation, text, after.as_ref(), wanted).await?;
        looked_at += candidates.len();
        let at_end = candidates.len() < wanted;
        let mut now = read_now(stores, user, &candidates).await?;
        for place in candidates {
            if let Some(message) = now.remove(&(place.conversation.clone(), place.seq))
                && is_meant(&message, text)
            {
                if messages.len() == limit {
                    return Ok(SearchPage { messages, next: after });
                }
                messages.push(message);
            }
            after = Some(place);
        }
        if at_end {
            return Ok(SearchPage { messages, next: None });
        }
        if looked_at >= CANDIDATES_MAX {
            return Ok(SearchPage { messages, next: after });
        }
    }
}

fn is_meant(message: &Message, text: &SearchText) -> bool {
    message.deleted_at.is_none() && message.kind != MessageKind::System && text.matches(&message.body)
}

/// The candidates as the user may see them now.
async fn read_now(stores: &Stores, user: &UserId, places: &[FoundAt]) -> Result<BTreeMap<(ConversationId, Seq), Message>, Refusal> {
    let mut by_conversation: BTreeMap<ConversationId, BTreeSet<Seq>> = BTreeMap::new();
    for place in places {
        by_conversation.entry(place.conversation.clone()).or_default().insert(place.seq);
    }
    let reads = stream::iter(by_conversation).map(|(id, seqs)| async move {
        let seqs: Vec<Seq> = seqs.into_iter().collect();
        messages_for(stores, user, &id, &seqs).await
    });
    let read: Vec<Visible> = reads.buffer_unordered(READS_AT_ONCE).try_collect().await?;
    let seen = read.into_iter().flat_map(|visible| match visible {
        Visible::Messages(messages) => messages,
        Visible::NotMember => Vec::new(),
    });
    Ok(seen.map(|message| ((message.conversation.clone(), message.seq), message)).collect())
}
