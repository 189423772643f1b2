//! A user's conversations, newest activity first, and what is unread in all of them.

use std::collections::HashMap;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::Stores;
use super::name_conversations::{conversations_naming, name_conversations};
use super::read_conversation::{hot, view_of_hot, views_of_cold};
use super::show_messages::show_last_messages;
use crate::domain::conversation::ConversationView;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::position::Position;
use crate::domain::profile::fold;
use crate::domain::refusal::Refusal;
pub use crate::redis::read_index::Listed;
use crate::redis::read_index::read_index;
use crate::redis::read_log::log_head;
use crate::redis::touch_index::touch_index;

/// Conversations read from Redis at a time for one request.
const READS_AT_ONCE: usize = 16;
/// Conversations looked at in one go while a list is filtered or counted.
const CHUNK: u64 = 200;

/// A page of the list.
#[derive(Clone, Debug)]
pub struct ListPage {
    /// Newest activity first.
    pub items: Vec<ConversationView>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Listed>,
    /// The end of the user's log, read before the list.
    pub events_head: Position,
}

/// What is unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct UnreadTotals {
    /// Messages in conversations that are not muted.
    pub total: u64,
    /// How many of these have any, or are marked by hand.
    pub conversations: u64,
    /// Whether some conversation has more than is counted.
    pub more: bool,
    /// Messages in muted conversations.
    pub muted_total: u64,
    /// How many of these have any, or are marked by hand.
    pub muted_conversations: u64,
}

/// Reads a page of the conversations that are `hidden`, or of all others; `filter` keeps conversations whose title, peer or other members' names hold it, whatever the case.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn list_conversations(
    stores: &Stores,
    user: &UserId,
    after: Option<Listed>,
    limit: usize,
    filter: Option<&str>,
    hidden: bool,
) -> Result<ListPage, Refusal> {
    let filter = filter.map(fold);
    // Read first: what is not in the list is then certain to come after this place.
    let events_head = log_head(&stores.link, &stores.keys, user).await?;
    let mut after = after;
    let mut items = Vec::new();
    loop {
        // The first look at a plain list fetches what the page holds; what is left out of it is made up for in larger steps.
        let is_first = items.is_empty() && filter.is_none() && !hidden;
        let chunk = if is_first { u64::try_from(limit).unwrap_or(CHUNK).min(CHUNK) } else { CHUNK };
        let listed = read_list(stores, user, after.as_ref(), chunk).await?;
        let at_end = (listed.len() as u64) < chunk;
        let mut views = views(stores, user, &listed).await?;
        views.retain(|_, view| view.preferences.hidden == hidden && !is_made_by_block(view));
        if let Some(text) = filter.as_deref() {
            let ids: Vec<ConversationId> = views.keys().cloned().collect();
            let named = conversations_naming(stores, user, &ids, text).await;
            views.retain(|id, view| named.contains(id) || matches(view, user, text));
        }
        for entry in listed {
            if let Some(view) = views.remove(&entry.conversation) {
                items.push(view);
            }
            after = Some(entry);
            if items.len() == limit {
                show_last_messages(stores, user, &mut items).await?;
                name_conversations(stores, &mut items).await;
                return Ok(ListPage { items, next: after, events_head });
            }
        }
        if at_end {
            show_last_messages(stores, user, &mut items).await?;
            name_conversations(stores, &mut items).await;
            return Ok(ListPage { items, next: None, events_head });
        }
    }
}

/// Counts what is unread in all conversations but hidden ones: nobody could find there what a number stands for.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn count_unread(stores: &Stores, user: &UserId) -> Result<UnreadTotals, Refusal> {
    let mut totals = UnreadTotals::default();
    let mut after = None;
    loop {
        let listed = read_list(stores, user, after.as_ref(), CHUNK).await?;
        for view in views(stores, user, &listed).await?.values() {
            if view.preferences.hidden || is_made_by_block(view) {
                continue;
            }
            let any = u64::from(view.unread.count > 0 || view.preferences.marked_unread);
            if view.preferences.muted {
                totals.muted_total += view.unread.count;
                totals.muted_conversations += any;
            } else {
                totals.total += view.unread.count;
                totals.conversations += any;
                totals.more |= view.unread.more;
            }
        }
        if (listed.len() as u64) < CHUNK {
            return Ok(totals);
        }
        after = listed.into_iter().next_back();
    }
}

/// Whether there is nothing but a block in it: then it is not in its users' lists.
fn is_made_by_block(view: &ConversationView) -> bool {
    view.conversation.head_seq == 0 && view.conversation.blocks.any()
}

/// A page of the index; one that was lost, or never was, is first rebuilt from the archive.
async fn read_list(stores: &Stores, user: &UserId, after: Option<&Listed>, limit: u64) -> Result<Vec<Listed>, Refusal> {
    let page = read_index(&stores.link, &stores.keys, user, after, limit).await?;
    if page.whole {
        return Ok(page.items);
    }
    let archived = stores.archive.conversation_ids_of(user).await?;
    touch_index(&stores.link, &stores.keys, user, &archived, true).await?;
    Ok(read_index(&stores.link, &stores.keys, user, after, limit).await?.items)
}

async fn views(stores: &Stores, user: &UserId, listed: &[Listed]) -> Result<HashMap<ConversationId, ConversationView>, Refusal> {
    let ids: Vec<ConversationId> = listed.iter().map(|entry| entry.conversation.clone()).collect();
    let reads = stream::iter(ids).map(|id| async move {
        let hot = hot(stores, user, &id).await?;
        Ok::<_, Refusal>((id, hot))
    });
    let read: Vec<_> = reads.buffered(READS_AT_ONCE).try_collect().await?;
    let mut views = HashMap::with_capacity(read.len());
    let mut cold = Vec::new();
    for (id, hot) in read {
        match hot {
            None => cold.push(id),
            // Left since the index was written: not in the list any more.
            Some(hot) => match view_of_hot(stores, user, *hot) {
                Ok(view) => {
                    views.insert(id, view);
                }
                Err(Refusal::NotFound | Refusal::Dissolved) => {}
                Err(refusal) => return Err(refusal),
            },
        }
    }
    if !cold.is_empty() {
        views.extend(views_of_cold(stores, user, &cold).await?.into_iter().map(|view| (view.conversation.id.clone(), view)));
    }
    Ok(views)
}

fn matches(view: &ConversationView, user: &UserId, text: &str) -> bool {
    let title = view.conversation.title.as_deref().unwrap_or_default();
    let peer = view.conversation.peer_of(user).map_or("", UserId::as_str);
    fold(title).contains(text) || fold(peer).contains(text)
}
