//! Shows the other members that somebody types. Nothing is kept of it but when it last passed.

use serde_json::json;

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::read_conversation::view;
use super::tell_streams::tell_streams;
use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::{ConversationId, Rev, UserId};
use crate::domain::membership::Role;
use crate::domain::permission::{Act, Standing, may};
use crate::domain::refusal::Refusal;
use crate::redis::show_typing::{Shown, show_typing as pass};

/// Members asked for in one step when the conversation is not in Redis.
const PAGE: u64 = 1_000;

/// Tells the streams of the other members, unless a sign passed a moment ago.
///
/// A cold conversation stays cold: typing takes no numbers, so the archive's word on who belongs to it is enough.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, [`Refusal::ReadOnly`] where members do not write, [`Refusal::Unavailable`] when a store is
/// away.
pub async fn show_typing(stores: &Stores, user: &UserId, id: &ConversationId, typing: bool) -> Result<(), Refusal> {
    if !may(Act::Type, id.kind(), Standing::Member(Role::Member)) {
        let me = view(stores, user, id).await?.me;
        if !may(Act::Type, id.kind(), Standing::Member(me.role)) {
            return Err(Refusal::ReadOnly);
        }
    }
    let mut tries = Tries::new(stores);
    let mut archived: Option<Rev> = None;
    loop {
        let obstacle = match pass(&stores.link, &stores.keys, id, user, typing, archived.is_some()).await {
            Ok(Shown::Passed { rev, members }) => {
                tell(stores, user, id, typing, rev, members).await;
                return Ok(());
            }
            Ok(Shown::PassedCold) => {
                let members = archived_members(stores, id).await?;
                tell(stores, user, id, typing, archived.unwrap_or_default(), members).await;
                return Ok(());
            }
            Ok(Shown::Held) => return Ok(()),
            Ok(Shown::NotMember) => return Err(Refusal::NotFound),
            Ok(Shown::Cold) => {
                let (conversation, _) = stores.archive.membership(id, user).await?.ok_or(Refusal::NotFound)?;
                if conversation.blocks.any() {
                    return Ok(());
                }
                archived = Some(conversation.rev);
                Obstacle::Changed
            }
            Ok(Shown::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, user, obstacle, false).await?;
    }
}

async fn archived_members(stores: &Stores, id: &ConversationId) -> Result<Vec<UserId>, Refusal> {
    let mut users: Vec<UserId> = Vec::new();
    loop {
        let page = stores.archive.members_page(id, users.last(), PAGE).await?;
        let is_last = (page.len() as u64) < PAGE;
        users.extend(page.into_iter().map(|member| member.user));
        if is_last {
            return Ok(users);
        }
    }
}

async fn tell(stores: &Stores, user: &UserId, id: &ConversationId, typing: bool, rev: Rev, mut members: Vec<UserId>) {
    members.retain(|member| member != user);
    let event = Pointer {
        kind: EventType::TypingUpdated,
        conversation: id.clone(),
        rev,
        seq: 0,
        at: stores.clock.now(),
        data: Some(json!({"user_id": user.as_str(), "typing": typing}).to_string()),
    };
    tell_streams(stores, &event, &members).await;
}
