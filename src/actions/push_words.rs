//! What a push says when it is sent: not what was true when it was queued. Between the two the user may have read it, left or been removed,
//! asked for silence, or blocked the sender; and what was said may have been taken back.

use super::Stores;
use super::name_conversations::name_conversation;
use super::read_conversation::{hot, view_of_hot, views_of_cold};
use super::read_messages::{Place, Visible, messages_for, page};
use super::read_profiles::profiles_of;
use super::show_shares::show_shares;
use crate::domain::conversation::ConversationView;
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::message::{Message, MessageKind};
use crate::domain::quote::{ShownMessage, without_placeholders};
use crate::domain::refusal::Refusal;
use crate::domain::share::ShareFacts;
use crate::postgres::ClaimedPush;
use crate::push::payload::{Preview, PushWords};

/// Newest messages among which one is looked for that the user has to be told of.
const LOOKED_AT_MAX: usize = 20;

/// What is to be said, as things are now; `None` when there is nothing any more.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away: then nothing can be said.
pub async fn push_words(stores: &Stores, push: &ClaimedPush) -> Result<Option<PushWords>, Refusal> {
    let (user, id) = (&push.user, &push.conv);
    let Some(view) = view_of(stores, user, id).await? else { return Ok(None) };
    let silent = view.preferences.muted || view.unread.count == 0 || view.conversation.blocked_by(user).is_some();
    if silent {
        return Ok(None);
    }
    let told_to = view.read_seq.max(push.sent_seq);
    let Some(message) = newest(stores, user, id, told_to, push.seq).await? else { return Ok(None) };
    let (seq, unread, mentions) = (message.seq, view.unread, view.unread_mentions);
    let preview = if push.show_preview { Some(preview(stores, view, message).await) } else { None };
    Ok(Some(PushWords { conversation: id.clone(), seq, unread, mentions, preview }))
}

/// The conversation as the user sees it; `None` for who does not belong to it.
async fn view_of(stores: &Stores, user: &UserId, id: &ConversationId) -> Result<Option<ConversationView>, Refusal> {
    let found = match hot(stores, user, id).await? {
        Some(hot) => view_of_hot(stores, user, *hot),
        None => views_of_cold(stores, user, std::slice::from_ref(id)).await?.pop().ok_or(Refusal::NotFound),
    };
    unless_gone(found)
}

/// The newest message above `told_to` that counts as unread: among the newest there are, or the one that was queued.
async fn newest(stores: &Stores, user: &UserId, id: &ConversationId, told_to: Seq, queued: Seq) -> Result<Option<Message>, Refusal> {
    let counts = |message: &Message| {
        message.seq > told_to && message.sender != *user && message.kind != MessageKind::System && message.deleted_at.is_none()
    };
    let Some(latest) = unless_gone(page(stores, user, id, Place::Latest, LOOKED_AT_MAX).await)? else { return Ok(None) };
    if let Some(message) = latest.messages.into_iter().rev().find(|message| counts(message)) {
        return Ok(Some(message));
    }
    match messages_for(stores, user, id, &[queued]).await? {
        Visible::Messages(found) => Ok(found.into_iter().find(counts)),
        Visible::NotMember => Ok(None),
    }
}

fn unless_gone<T>(found: Result<T, Refusal>) -> Result<Option<T>, Refusal> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Refusal::NotFound | Refusal::Dissolved) => Ok(None),
        Err(refusal) => Err(refusal),
    }
}

async fn preview(stores: &Stores, view: ConversationView, message: Message) -> Preview {
    let view = name_conversation(stores, view).await;
    let profiles = profiles_of(stores, vec![message.sender.clone()]).await;
    let sender_name = profiles.get(&message.sender).and_then(|profile| profile.name.clone()).unwrap_or_else(|| message.sender.to_string());
    let mut shown = ShownMessage::plain(message);
    show_shares(stores, [&mut shown]).await;
    let words = match &shown.shared {
        Some(ShareFacts::Told(card)) if shown.message.body.is_empty() => card.title.clone(),
        _ => without_placeholders(&shown.message),
    };
    let title = view.names.called.unwrap_or_else(|| view.conversation.id.to_string());
    Preview { title, sender_name, words, message: shown.message }
}
