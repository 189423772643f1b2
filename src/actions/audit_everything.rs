//! Walks through everything there is to audit, a page at a time, and can go on from where it stopped.

use std::fmt;

use uuid::Uuid;

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::audit_conversations::audit_conversations;
use super::audit_shards::audit_shards;
use super::audit_users::audit_users;
use crate::domain::audit::Finding;
use crate::domain::ids::{ConversationId, Millis, ShardId, UserId};
use crate::redis::audit_keys::scan_warm;

/// Conversations of a page.
const CONVERSATIONS: u64 = 100;
/// Users of a page.
const USERS: u64 = 50;
/// Pictures of a page.
const PICTURES: u64 = 5_000;

/// How far an audit came. Written as a conversation's id, or `users/<user id>`, or `media/<id>`; no conversation's id has a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// Before the first shard.
    Begin,
    /// Behind this conversation, in the order of bytes.
    Conversation(String),
    /// Among the conversations that only Redis has: shard, scan cursor. Written as the last conversation's place, so it begins again.
    Young(String, u16, String),
    /// Behind this user, in the order of bytes.
    User(String),
    /// Behind this picture.
    Media(Uuid),
    /// Behind everything.
    End,
}

impl Place {
    /// Reads what [`Place`] writes; `None` when it cannot be one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(user) = text.strip_prefix("users/") {
            return (user.is_empty() || UserId::parse(user).is_ok()).then(|| Self::User(user.to_owned()));
        }
        if let Some(id) = text.strip_prefix("media/") {
            return Uuid::try_parse(id).ok().map(Self::Media);
        }
        ConversationId::parse(text).map(|id| Self::Conversation(id.to_string()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin => Ok(()),
            Self::Conversation(id) | Self::Young(id, ..) => f.write_str(id),
            Self::User(user) => write!(f, "users/{user}"),
            Self::Media(id) => write!(f, "media/{id}"),
            Self::End => f.write_str("the end"),
        }
    }
}

/// How much was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Looked {
    /// Conversations.
    pub conversations: u64,
    /// Numbers of messages.
    pub messages: u64,
    /// Users.
    pub users: u64,
}

/// An audit under way.
#[derive(Debug)]
pub struct Audit<'s> {
    stores: &'s Stores,
    behind_ms: Millis,
    /// Only these conversations.
    chosen: Option<Vec<ConversationId>>,
    /// How far it came.
    pub place: Place,
    /// How much was looked at.
    pub looked: Looked,
}

impl<'s> Audit<'s> {
    /// Of everything, from a place on. What waits for longer than `behind_ms` is a finding.
    #[must_use]
    pub fn of_everything(stores: &'s Stores, place: Place, behind_ms: Millis) -> Self {
        Self { stores, behind_ms, chosen: None, place, looked: Looked::default() }
    }

    /// Of these conversations.
    #[must_use]
    pub fn of(stores: &'s Stores, conversations: Vec<ConversationId>) -> Self {
        Self { stores, behind_ms: 0, chosen: Some(conversations), place: Place::Begin, looked: Looked::default() }
    }

    /// Audits the next page; `None` when everything was looked at. Cut off, it goes on with the same page.
    ///
    /// # Errors
    /// When a store does not answer.
    pub async fn step(&mut self) -> Result<Option<Vec<Finding>>, ArchiveStop> {
        if let Some(chosen) = self.chosen.clone() {
            if self.place == Place::End {
                return Ok(None);
            }
            let found = audit_conversations(self.stores, &chosen).await?;
            self.looked.conversations = chosen.len() as u64;
            self.looked.messages = self.stores.archive.audited(&chosen).await?.iter().map(|a| a.head).sum();
            self.place = Place::End;
            return Ok(Some(found));
        }
        let (found, next) = match self.place.clone() {
            Place::Begin => (audit_shards(self.stores, self.behind_ms).await?, Place::Conversation(String::new())),
            Place::Conversation(after) => self.conversations(after).await?,
            Place::Young(after, shard, cursor) => self.young(after, shard, &cursor).await?,
            Place::User(after) => self.users(after).await?,
            Place::Media(after) => {
                let (found, last) = self.stores.archive.audit_media(after, PICTURES).await?;
                (found, last.map_or(Place::End, Place::Media))
            }
            Place::End => return Ok(None),
        };
        self.place = next;
        Ok(Some(found))
    }

    async fn conversations(&mut self, after: String) -> Result<(Vec<Finding>, Place), ArchiveStop> {
        let page = self.stores.archive.audit_page(&after, CONVERSATIONS).await?;
        let Some((last, _)) = page.last() else { return Ok((Vec::new(), Place::Young(after, 0, "0".to_owned()))) };
        let last = last.to_string();
        let ids: Vec<ConversationId> = page.iter().map(|(id, _)| id.clone()).collect();
        let found = audit_conversations(self.stores, &ids).await?;
        self.looked.conversations += ids.len() as u64;
        self.looked.messages += page.iter().map(|(_, head)| head).sum::<u64>();
        Ok((found, Place::Conversation(last)))
    }

    /// Conversations in Redis of which the archive has no row yet.
    async fn young(&mut self, after: String, shard: u16, cursor: &str) -> Result<(Vec<Finding>, Place), ArchiveStop> {
        if shard >= self.stores.keys.shards {
            return Ok((Vec::new(), Place::User(String::new())));
        }
        let (next, warm) = scan_warm(&self.stores.link, ShardId(shard), cursor).await.map_err(ArchiveStop::from)?;
        let mut young = Vec::new();
        for id in warm {
            if !self.stores.archive.conversation_exists(&id).await? {
                young.push(id);
            }
        }
        let found = audit_conversations(self.stores, &young).await?;
        self.looked.conversations += young.len() as u64;
        let (shard, cursor) = if next == "0" { (shard + 1, "0".to_owned()) } else { (shard, next) };
        Ok((found, Place::Young(after, shard, cursor)))
    }

    async fn users(&mut self, after: String) -> Result<(Vec<Finding>, Place), ArchiveStop> {
        let users = self.stores.archive.audit_users(&after, USERS).await?;
        let Some(last) = users.last().map(ToString::to_string) else { return Ok((Vec::new(), Place::Media(Uuid::nil()))) };
        let found = audit_users(self.stores, &users).await?;
        self.looked.users += users.len() as u64;
        Ok((found, Place::User(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_as_they_are_written() {
        let places = [
            Place::Conversation("system:order:1".into()),
            Place::User("users/ann".replace('/', ":")),
            Place::User(String::new()),
            Place::Media(Uuid::from_u128(7)),
        ];
        for place in places {
            assert_eq!(Place::parse(&place.to_string()), Some(place));
        }
        for text in ["", "ann", "users/a/b", "media/7", "group:7"] {
            assert_eq!(Place::parse(text), None, "{text}");
        }
    }
}
