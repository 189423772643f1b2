//! The stored cursors of a user's devices. See `lua/ack_cursor.lua`.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::Unreadable;
use crate::domain::ids::{Millis, UserId};
use crate::domain::position::Position;

/// The script.
pub static SCRIPT: Script = Script { name: "ack_cursor", source: include_str!("../../lua/ack_cursor.lua") };

/// Devices of a user whose cursors are kept; beyond that the longest unused goes.
const DEVICES_MAX: u64 = 20;

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acked {
    /// The cursor stands there now.
    Moved,
    /// The cursor stood there or further already.
    Kept,
    /// The log has no such place yet.
    Future,
    /// The place belongs to another log.
    Lost,
}

/// Moves a device's cursor forward.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn ack_cursor(link: &Link, keys: &Keys, user: &UserId, device: &str, place: &Position, now: Millis) -> Result<Acked, RedisError> {
    let Some(epoch) = &place.epoch else { return Ok(Acked::Lost) };
    let of = keys.user(user);
    let args =
        [device.to_owned(), epoch.clone(), place.entry.ms.to_string(), place.entry.n.to_string(), now.to_string(), DEVICES_MAX.to_string()];
    let reply = link.eval(&SCRIPT, vec![of.cursors, of.log, of.log_info], args.into_iter().map(Bytes::from).collect()).await?;
    Ok(match reply.items()?.str()? {
        "moved" => Acked::Moved,
        "kept" => Acked::Kept,
        "future" => Acked::Future,
        "lost" => Acked::Lost,
        _ => return Ok(unknown_word("ack_cursor")?),
    })
}

/// The stored cursor of a device.
///
/// # Errors
/// When Redis cannot be asked or answers in another form.
pub async fn stored_cursor(link: &Link, keys: &Keys, user: &UserId, device: &str) -> Result<Option<Position>, RedisError> {
    let cursors = keys.user(user).cursors;
    let args = vec![Bytes::from(cursors.clone()), Bytes::from(device.to_owned())];
    let reply = link.command("HGET", &cursors, args).await?;
    let Some(record) = reply.present() else { return Ok(None) };
    let place = record.as_str()?.split(' ').next().unwrap_or_default();
    Ok(Some(Position::parse(place).ok_or(Unreadable("cursor"))?))
}
