//! Reads a user's list of conversations. See `lua/read_index.lua`.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::stored_form::Unreadable;
use crate::domain::ids::{ConversationId, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "read_index", source: include_str!("../../lua/read_index.lua") };

/// A place in the list: what a page ended with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// Which.
    pub conversation: ConversationId,
    /// Its last activity (ms × 4096 + n), never above 2^53.
    pub score: u64,
}

/// A page of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexPage {
    /// Whether the list holds all of the user's conversations; if not, it must be rebuilt from the archive (see `touch_index`).
    pub whole: bool,
    /// Newest activity first.
    pub items: Vec<Listed>,
}

/// Reads up to `limit` conversations below `after`.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn read_index(link: &Link, keys: &Keys, user: &UserId, after: Option<&Listed>, limit: u64) -> Result<IndexPage, RedisError> {
    let (score, last) = after.map(|l| (l.score.to_string(), l.conversation.to_string())).unwrap_or_default();
    let args = vec![Bytes::from(score), Bytes::from(last), Bytes::from(limit.to_string())];
    let reply = link.eval(&SCRIPT, vec![keys.user(user).index], args).await?;
    let mut items = reply.items()?;
    if items.str()? != "page" {
        return Err(Unreadable("read_index").into());
    }
    let mut page = IndexPage { whole: items.bool()?, items: Vec::new() };
    while !items.is_empty() {
        let conversation = ConversationId::parse(items.str()?).ok_or(Unreadable("indexed conversation"))?;
        page.items.push(Listed { conversation, score: items.u64()? });
    }
    Ok(page)
}
