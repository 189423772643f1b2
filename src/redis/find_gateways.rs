//! Finds the gateways that hold open streams of users. See `lua/find_gateways.lua`.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::stored_form::Unreadable;
use crate::domain::ids::{Millis, UserId};

/// The script.
pub static SCRIPT: Script = Script { name: "find_gateways", source: include_str!("../../lua/find_gateways.lua") };

/// Users that one call of the script takes at most.
const USERS_MAX: usize = 200;
/// Calls that are under way at a time.
const CALLS_AT_ONCE: usize = 8;

/// Who can be reached, and where.
#[derive(Clone, Debug, Default)]
pub struct Reachable {
    /// Gateway and the users with streams there; a user with streams at several stands at each.
    pub users: BTreeMap<String, Vec<UserId>>,
    /// Why the first of the calls failed whose users are missing.
    pub error: Option<RedisError>,
}

/// Finds them. What cannot be asked is left out: the others are found all the same.
pub async fn find_gateways(link: &Link, keys: &Keys, users: &[UserId], now: Millis) -> Reachable {
    let mut groups: BTreeMap<u16, Vec<UserId>> = BTreeMap::new();
    for user in users {
        let group = if link.is_cluster() { keys.partition_of(user).0 } else { 0 };
        groups.entry(group).or_default().push(user.clone());
    }
    let calls: Vec<Vec<UserId>> =
        groups.into_values().flat_map(|group| group.chunks(USERS_MAX).map(<[_]>::to_vec).collect::<Vec<_>>()).collect();
    let mut running = futures_util::stream::iter(calls.into_iter().map(|call| ask(link, keys, call, now))).buffer_unordered(CALLS_AT_ONCE);
    let mut reachable = Reachable::default();
    while let Some(answer) = running.next().await {
        match answer {
            Ok(found) => {
                for (user, gateways) in found {
                    for gateway in gateways {
                        reachable.users.entry(gateway).or_default().push(user.clone());
                    }
                }
            }
            Err(error) => reachable.error = reachable.error.or(Some(error)),
        }
    }
    reachable
}

/// Each of these users with the gateways.
async fn ask(link: &Link, keys: &Keys, users: Vec<UserId>, now: Millis) -> Result<Vec<(UserId, Vec<String>)>, RedisError> {
    let names = users.iter().map(|user| keys.user(user).log_info).collect();
    let reply = link.eval(&SCRIPT, names, vec![Bytes::from(now.to_string())]).await?;
    let mut items = reply.items()?;
    if items.str()? != "found" {
        return Err(Unreadable("find_gateways").into());
    }
    let mut found = Vec::with_capacity(users.len());
    for user in users {
        found.push((user, items.str()?.split(' ').filter(|gateway| !gateway.is_empty()).map(str::to_owned).collect()));
    }
    Ok(found)
}
