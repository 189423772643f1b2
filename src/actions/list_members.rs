//! The members of a conversation, in pages ordered by user id.

use super::Stores;
use super::open_epoch::open_shard;
use super::read_conversation::{archived_facts, told_to_strangers};
use crate::domain::ids::{ConversationId, UserId};
use crate::domain::membership::{Member, Reader};
use crate::domain::refusal::Refusal;
use crate::redis::read_members::{MembersRead, read_members};

/// Reads up to `limit` members after `after`, ids compared bytewise, and whether there are more.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, [`Refusal::Dissolved`] for who was one of a group that has ended.
pub async fn list_members<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Vec<Member>, bool), Refusal> {
    let reader = reader.into();
    let found = members_of(stores, reader, id, after, limit).await;
    told_to_strangers(stores, reader, id, found).await
}

async fn members_of(
    stores: &Stores,
    reader: Reader<'_>,
    id: &ConversationId,
    after: Option<&UserId>,
    limit: usize,
) -> Result<(Vec<Member>, bool), Refusal> {
    let mut members = match read(stores, reader.user, id).await? {
        Some(members) => {
            if !may_look(reader, id, &members) {
                return Err(Refusal::NotFound);
            }
            let mut members: Vec<Member> = members.into_iter().filter(|m| after.is_none_or(|a| m.user > *a)).collect();
            members.sort_by(|a, b| a.user.cmp(&b.user));
            members
        }
        None => {
            archived_facts(stores, reader, id).await?.ok_or(Refusal::NotFound)?;
            stores.archive.members_page(id, after, u64::try_from(limit + 1).unwrap_or(u64::MAX)).await?
        }
    };
    let more = members.len() > limit;
    members.truncate(limit);
    Ok((members, more))
}

fn may_look(reader: Reader<'_>, id: &ConversationId, members: &[Member]) -> bool {
    reader.must_be_member(id.kind()).is_none_or(|user| members.iter().any(|member| &member.user == user))
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
pub async fn read_member<'a>(
    stores: &Stores,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    user: &UserId,
) -> Result<Member, Refusal> {
    let reader = reader.into();
    let find = |members: Vec<Member>| {
        let allowed = may_look(reader, id, &members);
        members.into_iter().find(|m| allowed && &m.user == user).ok_or(Refusal::NotFound)
    };
    match read(stores, reader.user, id).await? {
        Some(members) => find(members),
        None => {
            archived_facts(stores, reader, id).await?.ok_or(Refusal::NotFound)?;
            Ok(stores.archive.membership(id, user).await?.ok_or(Refusal::NotFound)?.1)
        }
    }
}
