//! Tells which users have streams at a gateway, and looks where their logs stand. See `lua/register_streams.lua`.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;

use super::error::RedisError;
use super::event_log::{LogState, entry_id, fresh_nonce, gateway_field};
use super::keys::Keys;
use super::link::{Link, Script};
use super::stored_form::Unreadable;
use crate::domain::ids::{Millis, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "register_streams", source: include_str!("../../lua/register_streams.lua") };

/// Users that one call of the script takes at most.
const USERS_MAX: usize = 200;
/// Calls that are under way at a time.
const CALLS_AT_ONCE: usize = 4;

/// What the gateway says about the users.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// They have streams here; wake-ups are wanted until then.
    Until(Millis),
    /// Nothing: it only looks.
    Look,
    /// They have none here any more.
    Gone,
}

/// Says so, and returns where each user's log stands (nothing for [`Presence::Gone`], and nothing for a user whose log could not be looked at).
///
/// # Errors
/// The first call that failed; the others were made.
pub async fn register_streams(
    link: &Link,
    keys: &Keys,
    gateway: &str,
    users: &[UserId],
    presence: Presence,
) -> Result<Vec<(UserId, LogState)>, RedisError> {
    let mut groups: BTreeMap<u16, Vec<UserId>> = BTreeMap::new();
    for user in users {
        let group = if link.is_cluster() { keys.partition_of(user).0 } else { 0 };
        groups.entry(group).or_default().push(user.clone());
    }
    let calls: Vec<Vec<UserId>> =
        groups.into_values().flat_map(|group| group.chunks(USERS_MAX).map(<[_]>::to_vec).collect::<Vec<_>>()).collect();
    let mut running = futures_util::stream::iter(calls.into_iter().map(|call| register(link, keys, gateway, call, presence)))
        .buffer_unordered(CALLS_AT_ONCE);
    let (mut places, mut failure) = (Vec::with_capacity(users.len()), None);
    while let Some(done) = running.next().await {
        match done {
            Ok(part) => places.extend(part),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match failure {
        Some(error) => Err(error),
        None => Ok(places),
    }
}

async fn register(
    link: &Link,
    keys: &Keys,
    gateway: &str,
    users: Vec<UserId>,
    presence: Presence,
) -> Result<Vec<(UserId, LogState)>, RedisError> {
    let mut names = Vec::with_capacity(users.len() * 2);
    for user in &users {
        let of = keys.user(user);
        names.extend([of.log, of.log_info]);
    }
    let until = match presence {
        Presence::Until(at) => at.to_string(),
        Presence::Look => "look".to_owned(),
        Presence::Gone => "leave".to_owned(),
    };
    let args = vec![Bytes::from(gateway_field(gateway)), Bytes::from(until), Bytes::from(fresh_nonce())];
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    if items.str()? != "places" {
        return Err(Unreadable("register_streams").into());
    }
    let mut places = Vec::with_capacity(users.len());
    for user in users {
        let (epoch, last, trimmed) = (items.str()?, items.str()?, items.str()?);
        if !epoch.is_empty() {
            places.push((user, LogState { epoch: epoch.to_owned(), last: entry_id(last)?, trimmed: entry_id(trimmed)? }));
        }
    }
    Ok(places)
}
