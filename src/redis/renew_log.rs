//! Begins a user's log anew. See `lua/renew_log.lua`.

use super::error::RedisError;
use super::event_log::fresh_nonce;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use crate::domain::ids::{Millis, UserId};
use crate::domain::position::{EntryId, Position};

/// The script.
pub static SCRIPT: Script = Script { name: "renew_log", source: include_str!("../../lua/renew_log.lua") };

/// A log that has begun anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renewed {
    /// Its beginning.
    pub head: Position,
    /// Gateways at which the user has streams.
    pub gateways: Vec<String>,
}

/// Begins the log anew; `None` when nothing was ever in it, so that nothing had to be done.
///
/// # Errors
/// When Redis cannot be asked; it may have been done.
pub async fn renew_log(link: &Link, keys: &Keys, user: &UserId, now: Millis) -> Result<Option<Renewed>, RedisError> {
    let of = keys.user(user);
    let reply = link.eval(&SCRIPT, vec![of.log, of.log_info], vec![fresh_nonce().into(), now.to_string().into()]).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "renewed" => {}
        "empty" => return Ok(None),
        _ => return Ok(unknown_word("renew_log")?),
    }
    let head = Position { epoch: Some(items.str()?.to_owned()), entry: EntryId::default() };
    let gateways = items.str()?.split(' ').filter(|gateway| !gateway.is_empty()).map(str::to_owned).collect();
    Ok(Some(Renewed { head, gateways }))
}
