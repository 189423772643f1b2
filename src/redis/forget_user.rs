//! Drops what is kept for one user alone: the log, the list, devices' cursors, buckets of limits. They begin anew when they are used again;
//! a position of the dropped log is then one of another log. Tickets end by themselves within minutes.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::Link;
use crate::domain::ids::UserId;
use crate::domain::rate_limit::Limited;

/// Drops them.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn forget_user(link: &Link, keys: &Keys, user: &UserId) -> Result<(), RedisError> {
    let of = keys.user(user);
    let buckets = [Limited::UserSends, Limited::UserWrites].map(|limited| keys.bucket(user, limited));
    let slot = of.log.clone();
    let names = [of.log, of.log_info, of.cursors, of.index].into_iter().chain(buckets).map(Bytes::from).collect();
    link.command("DEL", &slot, names).await?;
    Ok(())
}
