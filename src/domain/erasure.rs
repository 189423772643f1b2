//! What is left of a message when a user is erased. Pure.

use super::ids::{Millis, UserId};
use super::message::{Message, MessageKind};
use super::message_change::Turn;
use super::reaction::Reaction;

/// A request to erase a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// Whom.
    pub user: UserId,
    /// Which server of the host application asked.
    pub asked_by: UserId,
    /// When, ms.
    pub asked_at: Millis,
    /// When everything was done, ms; `None` while it is under way.
    pub finished_at: Option<Millis>,
    /// Messages that were blanked so far.
    pub messages: u64,
}

/// The message as it is left, without its new rev; `None` when nothing of the user is in it. What was taken back before is blank already,
/// and the timeline says who came and went, which others need to understand what they read.
#[must_use]
pub fn erase(message: &Message, user: &UserId, by: &UserId, now: Millis) -> Option<(Turn, Message)> {
    if message.sender == *user && message.kind != MessageKind::System && message.deleted_at.is_none() {
        // The fingerprint goes as well: few words are guessed from it.
        return Some((Turn::Deleted, Message { fingerprint: None, ..message.taken_back(by, now) }));
    }
    if !message.reactions.iter().any(|reaction| reaction.users.contains(user)) {
        return None;
    }
    let without = |reaction: &Reaction| {
        let users: Vec<UserId> = reaction.users.iter().filter(|other| *other != user).cloned().collect();
        (!users.is_empty()).then(|| Reaction { emoji: reaction.emoji.clone(), users })
    };
    let reactions = message.reactions.iter().filter_map(without).collect();
    Some((Turn::Reacted, Message { reactions, ..message.clone() }))
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::domain::ids::ConversationId;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn said_by(sender: &str) -> Message {
        let conversation = ConversationId::of_system("x").unwrap();
        let message = Message::unplaced(Uuid::now_v7(), conversation, user(sender), MessageKind::Text, 1_000);
        let both = Reaction { emoji: "+".into(), users: vec![user("ann"), user("bob")] };
        let one = Reaction { emoji: "-".into(), users: vec![user("ann")] };
        Message { body: "words".into(), mentions: vec![user("bob")], reactions: vec![both, one], ..message }
    }

    #[test]
    fn own_words_go_and_of_others_only_what_one_put_there() {
        let own = said_by("ann");
        let (turn, gone) = erase(&own, &user("ann"), &user("host"), 500).unwrap();
        assert_eq!((turn, gone.body.as_str(), gone.seq, gone.id), (Turn::Deleted, "", own.seq, own.id));
        assert!(gone.mentions.is_empty() && gone.reactions.is_empty());
        assert_eq!((gone.deleted_at, gone.deleted_by.clone()), (Some(1_000), Some(user("host"))), "never before it was said");
        assert_eq!(erase(&gone, &user("ann"), &user("host"), 900), None);

        let (turn, left) = erase(&said_by("bob"), &user("ann"), &user("host"), 500).unwrap();
        assert_eq!((turn, left.body.as_str(), left.reactions.len()), (Turn::Reacted, "words", 1));
        assert_eq!(left.reactions[0].users, [user("bob")]);
        assert_eq!(erase(&left, &user("ann"), &user("host"), 500), None);
        let timeline = Message { kind: MessageKind::System, reactions: Vec::new(), ..own };
        assert_eq!(erase(&timeline, &user("ann"), &user("host"), 500), None);
    }
}
