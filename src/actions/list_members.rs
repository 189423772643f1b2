//! The members of a conversation, in pages ordered by user id.

use super::Stores;
use super::open_epoch::open_shard;
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::membership::Member;
use crate::domain::refusal::Refusal;
use crate::redis::read_members::{MembersRead, read_members};

/// Reads up to `limit` members after `after`, ids compared bytewise, and whether there are more.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member.
pub async fn list_members(
    stores: &Stores,
    user: &UserId,
    id: &ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Vec<Member>, bool), Refusal> {
    let mut members = match read(stores, user, id).await? {
        Some(members) => {
            if !members.iter().any(|m| &m.user == user) {
                return Err(Refusal::NotFound);
            }
            let mut members: Vec<Member> = members.into_iter().filter(|m| after.is_none_or(|a| m.user > *a)).collect();
            members.sort_by(|a, b| a.user.cmp(&b.user));
            members
        }
        None => {
            stores.archive.membership(id, user).await?.ok_or(Refusal::NotFound)?;
            stores.archive.members_page(id, after, u64::try_from(limit + 1).unwrap_or(u64::MAX)).await?
        }
    };
    let more = members.len() > limit;
    members.truncate(limit);
    Ok((members, more))
}

async fn read(stores: &Stores, user: &UserId, id: &ConversationId) -> Result<Option<Vec<Member>>, Refusal> {
    for _ in 0..2 {
        match read_members(&stores.link, &stores.keys, id, user).await? {
            MembersRead::Here(hot) if hot.head.made => return Ok(Some(hot.members)),
            MembersRead::Here(_) => return Err(Refusal::NotFound),
            MembersRead::Cold => return Ok(None),
            MembersRead::StaleEpoch => {
                open_shard(stores, stores.keys.shard_of(id)).await?;
            }
        }
    }
    Err(Refusal::Unavailable("the live store is changing"))
}

/// Reads one member, for a caller who is one.
///
/// # Errors
/// [`Refusal::NotFound`] when either is no member.
pub async fn read_member(stores: &Stores, caller: &UserId, id: &ConversationId, user: &UserId) -> Result<Member, Refusal> {
    let find = |members: Vec<Member>| {
        let allowed = members.iter().any(|m| &m.user == caller);
        members.into_iter().find(|m| allowed && &m.user == user).ok_or(Refusal::NotFound)
    };
    match read(stores, caller, id).await? {
        Some(members) => find(members),
        None => {
            stores.archive.membership(id, caller).await?.ok_or(Refusal::NotFound)?;
            Ok(stores.archive.membership(id, user).await?.ok_or(Refusal::NotFound)?.1)
        }
    }
}
