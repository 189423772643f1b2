//! Puts conversations into a user's list. See `lua/touch_index.lua`.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use crate::domain::ids::{ConversationId, Millis, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "touch_index", source: include_str!("../../lua/touch_index.lua") };

/// Conversations that one call takes at most.
const TOUCHES_MAX: usize = 500;

/// The score of a conversation in which something happened at this moment.
#[must_use]
pub fn activity_score(at: Millis) -> u64 {
    u64::try_from(at).unwrap_or(0) << 12
}

/// Puts conversations into the list, or raises them in it, by the time of their last activity. `whole` says that nothing is missing from the
/// list after this.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn touch_index(
    link: &Link,
    keys: &Keys,
    user: &UserId,
    touched: &[(ConversationId, Millis)],
    whole: bool,
) -> Result<(), RedisError> {
    let index = keys.user(user).index;
    for run in touched.chunks(TOUCHES_MAX) {
        touch(link, &index, run, false).await?;
    }
    if whole {
        touch(link, &index, &[], true).await?;
    }
    Ok(())
}

async fn touch(link: &Link, index: &str, touched: &[(ConversationId, Millis)], whole: bool) -> Result<(), RedisError> {
    let mut args = vec![Bytes::from_static(if whole { b"1" } else { b"" })];
    for (conversation, at) in touched {
        args.push(Bytes::from(activity_score(*at).to_string()));
        args.push(Bytes::from(conversation.to_string()));
    }
    link.eval(&SCRIPT, vec![index.to_owned()], args).await?;
    Ok(())
}
