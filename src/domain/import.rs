//! Old messages that come in from elsewhere: what they must be, and in which order they are numbered.

use std::collections::HashMap;

use super::assign_seq::{AssignError, Unnumbered, assign_seq};
use super::conversation::History;
use super::ids::{ClientKey, ConversationId, Millis, Seq, UserId};
use super::message::check_text_body;
use super::refusal::FieldError;

/// Where old messages go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportTarget {
    /// A conversation that is there.
    Existing(ConversationId),
    /// The one of two users, made if it is new.
    Single {
        /// The two.
        users: (UserId, UserId),
    },
    /// A group, made once for its key.
    Group {
        /// The host's own name of it.
        key: ClientKey,
        /// Its owner.
        owner: UserId,
        /// Its title.
        title: Option<String>,
        /// The others.
        members: Vec<UserId>,
        /// What joiners see.
        history: History,
    },
    /// One of the host application's own, made if it is new.
    System {
        /// Its id.
        id: ConversationId,
        /// Its title.
        title: Option<String>,
        /// Who reads it.
        members: Vec<UserId>,
    },
}

/// A message as it was elsewhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OldMessage {
    /// Its old id.
    pub id: ClientKey,
    /// Who wrote it.
    pub sender: UserId,
    /// The words.
    pub body: String,
    /// When.
    pub at: Millis,
    /// The old id of what it answers.
    pub reply_to: Option<ClientKey>,
}

impl OldMessage {
    /// Proves what can be said of one message by itself.
    ///
    /// # Errors
    /// Names `body`, `at` or `reply_to`.
    pub fn check(&self) -> Result<(), FieldError> {
        check_text_body(&self.body)?;
        if self.at < 0 {
            return Err(FieldError::new("at", "must not lie before 1970"));
        }
        if self.reply_to.as_ref() == Some(&self.id) {
            return Err(FieldError::new("reply_to", "must be another message"));
        }
        Ok(())
    }
}

/// Proves what can be said of all of them together, and tells which old ids are answered without being among them, each with the place
/// of the first message that answers it.
///
/// # Errors
/// The place of the first message that cannot be accepted, and its field.
pub fn check_together(messages: &[OldMessage], now: Millis) -> Result<HashMap<ClientKey, usize>, (usize, FieldError)> {
    /// Clocks may disagree a little.
    const AHEAD_MS_MAX: Millis = 60_000;
    let mut seen = HashMap::with_capacity(messages.len());
    for (index, message) in messages.iter().enumerate() {
        if seen.insert(&message.id, index).is_some() {
            return Err((index, FieldError::new("id", "stands on an earlier message too")));
        }
        if message.at > now + AHEAD_MS_MAX {
            return Err((index, FieldError::new("at", "must not lie in the future")));
        }
    }
    let mut outside = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        if let Some(answered) = message.reply_to.as_ref().filter(|id| !seen.contains_key(id)) {
            outside.entry(answered.clone()).or_insert(index);
        }
    }
    Ok(outside)
}

/// Numbers those of `messages` that `is_known` does not know, from `above` + 1, by time and then by old id; gives the place of each in
/// `messages` beside its number.
///
/// # Errors
/// When the numbers would be too large.
pub fn number(
    conversation: &ConversationId,
    messages: &[OldMessage],
    is_known: impl Fn(&OldMessage) -> bool,
    above: Seq,
) -> Result<Vec<(Seq, usize)>, AssignError> {
    let mut places = HashMap::with_capacity(messages.len());
    let mut unnumbered = Vec::new();
    for (index, message) in messages.iter().enumerate().filter(|(_, message)| !is_known(message)) {
        places.insert(message.id.as_str(), index);
        unnumbered.push(Unnumbered {
            id: message.id.to_string(),
            conversation: conversation.to_string(),
            sender: message.sender.to_string(),
            body: message.body.clone(),
            at: message.at,
        });
    }
    let above = i64::try_from(above).map_err(|_| AssignError::TooFar)?;
    let numbered = assign_seq(above, &unnumbered)?;
    let place = |numbered: super::assign_seq::Numbered| {
        let index = places.get(numbered.message.id.as_str()).copied()?;
        Some((Seq::try_from(numbered.seq).ok()?, index))
    };
    Ok(numbered.into_iter().filter_map(place).collect())
}
