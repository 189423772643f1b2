//! Tickets: short-lived secrets that open one user's stream from an address, for browsers that cannot send headers.
//!
//! ```text
//! ticket:{u7}:<hex of SHA-256 of the secret>   {"user":"ann","device":"phone","over_at":1764500600000}   with a time to live
//! ```
//! The secret itself is stored nowhere: who reads Redis cannot open a stream with what stands there. The partition stands in the ticket, so
//! that its key can be found.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::error::RedisError;
use super::keys::Keys;
use super::link::Link;
use super::stored_form::Unreadable;
use crate::domain::ids::{Millis, PartitionId, UserId};

/// Longest life of a ticket in milliseconds.
pub const LIFE_MS_MAX: u64 = 300_000;

/// What a ticket proves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TicketClaims {
    /// Whose stream it opens.
    pub user: UserId,
    /// The device of the token it was made from.
    pub device: Option<String>,
    /// When the token it was made from counts for nothing any more (leeway included), ms.
    pub over_at: Millis,
}

#[derive(Serialize, Deserialize)]
struct Record {
    user: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    over_at: Millis,
}

/// Makes a ticket that lives for `life_ms`; returns what the client is given.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn make_ticket(link: &Link, keys: &Keys, claims: &TicketClaims, life_ms: u64) -> Result<String, RedisError> {
    let secret = hex::encode(rand::random::<[u8; 32]>());
    let partition = keys.partition_of(&claims.user);
    let key = keys.ticket(partition, &digest(&secret));
    let record = Record { user: claims.user.to_string(), device: claims.device.clone(), over_at: claims.over_at };
    // A struct of strings and numbers always serialises.
    let json = serde_json::to_string(&record).unwrap_or_default();
    let args = [key.clone(), json, "PX".to_owned(), life_ms.clamp(1, LIFE_MS_MAX).to_string()];
    link.command("SET", &key, args.into_iter().map(Bytes::from).collect()).await?;
    Ok(format!("{}.{secret}", partition.0))
}

/// What a ticket proves; `None` for one that is unknown, over, or no ticket at all. It may be used again while it lives.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn find_ticket(link: &Link, keys: &Keys, ticket: &str) -> Result<Option<TicketClaims>, RedisError> {
    let Some((partition, secret)) = ticket.split_once('.') else { return Ok(None) };
    let plain = partition.len() <= 5
        && partition.bytes().all(|b| b.is_ascii_digit())
        && secret.len() == 64
        && secret.bytes().all(|b| b.is_ascii_hexdigit());
    let Some(partition) = partition.parse::<u16>().ok().filter(|p| plain && *p < keys.partitions) else { return Ok(None) };
    let key = keys.ticket(PartitionId(partition), &digest(secret));
    let reply = link.command("GET", &key, vec![Bytes::from(key.clone())]).await?;
    let Some(found) = reply.present() else { return Ok(None) };
    let record: Record = serde_json::from_str(found.as_str()?).map_err(|_| Unreadable("ticket"))?;
    let user = UserId::parse(&record.user).map_err(|_| Unreadable("ticket user"))?;
    Ok(Some(TicketClaims { user, device: record.device, over_at: record.over_at }))
}

fn digest(secret: &str) -> String {
    hex::encode(Sha256::digest(secret.as_bytes()))
}
