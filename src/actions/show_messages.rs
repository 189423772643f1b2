//! Makes messages ready to be shown to one reader: what they answer is looked up now, as this reader may see it now.

use std::collections::HashMap;

use super::Stores;
use super::read_messages::{Visible, messages_for};
use super::show_shares::show_shares;
use crate::domain::conversation::ConversationView;
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::membership::Reader;
use crate::domain::message::Message;
use crate::domain::quote::{Quote, ShownMessage};
use crate::domain::refusal::Refusal;

/// Shows messages of one conversation that `reader` may see.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn show_messages<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    conversation: &ConversationId,
    messages: Vec<Message>,
) -> Result<Vec<ShownMessage>, Refusal> {
    let reader = reader.into();
    let quotes = quotes(stores, reader, conversation, &messages).await?;
    let mut shown: Vec<ShownMessage> = messages
        .into_iter()
        .map(|message| ShownMessage { quote: quote_in(&quotes, &message), shared: None, reader: Some(reader.user.clone()), message })
        .collect();
    show_shares(stores, &mut shown).await;
    Ok(shown)
}

/// Shows one message.
///
/// # Errors
/// As [`show_messages`].
pub async fn show_message<'a>(stores: &Stores, reader: impl Into<Reader<'a>>, message: Message) -> Result<ShownMessage, Refusal> {
    let reader = reader.into();
    let conversation = message.conversation.clone();
    let quotes = quotes(stores, reader, &conversation, std::slice::from_ref(&message)).await?;
    let mut shown = ShownMessage { quote: quote_in(&quotes, &message), shared: None, reader: Some(reader.user.clone()), message };
    show_shares(stores, [&mut shown]).await;
    Ok(shown)
}

/// Shows messages of any conversations, in their order.
///
/// # Errors
/// As [`show_messages`].
pub async fn show_scattered(stores: &Stores, reader: &UserId, messages: Vec<Message>) -> Result<Vec<ShownMessage>, Refusal> {
    let mut shown = Vec::with_capacity(messages.len());
    for message in messages {
        shown.push(show_message(stores, reader, message).await?);
    }
    Ok(shown)
}

/// Looks up what the last messages of a reader's conversations answer and share.
///
/// # Errors
/// As [`show_messages`].
pub async fn show_last_messages(stores: &Stores, reader: &UserId, views: &mut [ConversationView]) -> Result<(), Refusal> {
    for last in views.iter_mut().filter_map(|view| view.last_message.as_mut()) {
        if last.message.reply_to.is_some() {
            *last = show_message(stores, reader, last.message.clone()).await?;
        }
    }
    show_shares(stores, views.iter_mut().filter_map(|view| view.last_message.as_mut())).await;
    Ok(())
}

/// The quoted messages of a conversation by their numbers; those the reader may not see are left out.
pub(super) async fn quotes<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    conversation: &ConversationId,
    messages: &[Message],
) -> Result<HashMap<Seq, Quote>, Refusal> {
    let mut quotes = HashMap::new();
    let mut missing: Vec<Seq> = Vec::new();
    for seq in messages.iter().filter_map(|message| message.reply_to) {
        match messages.iter().find(|message| message.seq == seq) {
            Some(message) => drop(quotes.insert(seq, Quote::of(message))),
            None if !missing.contains(&seq) => missing.push(seq),
            None => {}
        }
    }
    if !missing.is_empty()
        && let Visible::Messages(found) = messages_for(stores, reader, conversation, &missing).await?
    {
        quotes.extend(found.into_iter().map(|message| (message.seq, Quote::of(&message))));
    }
    Ok(quotes)
}

/// The quote of one message.
pub(super) fn quote_in(quotes: &HashMap<Seq, Quote>, message: &Message) -> Option<Quote> {
    message.reply_to.map(|seq| quotes.get(&seq).cloned().unwrap_or(Quote::Hidden { seq }))
}
