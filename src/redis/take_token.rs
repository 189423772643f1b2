//! Takes a token out of a user's bucket, or gives one back. A call that is repeated costs a token; nothing else hangs on it.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{Millis, UserId};
use crate::domain::rate_limit::{Limited, Rate};

/// The script.
pub static SCRIPT: Script = Script { name: "take_token", source: include_str!("../../lua/take_token.lua") };

/// What the bucket had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A token, and so many whole ones are left.
    Taken {
        /// Tokens left.
        left: u64,
    },
    /// None.
    Empty {
        /// Milliseconds until there is one.
        wait_ms: u64,
    },
}

/// Takes a token.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn take_token(link: &Link, keys: &Keys, user: &UserId, limited: Limited, rate: &Rate, now: Millis) -> Result<Token, RedisError> {
    let reply = call(link, keys, user, limited, rate, now, "1").await?;
    let mut items = reply.items()?;
    Ok(match items.str()? {
        "taken" => Token::Taken { left: items.u64()? },
        "empty" => Token::Empty { wait_ms: items.u64()? },
        _ => unknown_word("take_token: unknown word")?,
    })
}

/// Gives a token back that was taken for something that then cost nothing.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn give_token_back(
    link: &Link,
    keys: &Keys,
    user: &UserId,
    limited: Limited,
    rate: &Rate,
    now: Millis,
) -> Result<(), RedisError> {
    call(link, keys, user, limited, rate, now, "-1").await.map(|_| ())
}

async fn call(
    link: &Link,
    keys: &Keys,
    user: &UserId,
    limited: Limited,
    rate: &Rate,
    now: Millis,
    take: &str,
) -> Result<super::reply::Reply, RedisError> {
    let args = [now.to_string(), rate.per_second.to_string(), rate.burst.to_string(), take.to_owned()];
    Ok(link.eval(&SCRIPT, vec![keys.bucket(user, limited)], args.into_iter().map(Bytes::from).collect()).await?)
}
