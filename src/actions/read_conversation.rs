//! A conversation as one member sees it.

use super::Stores;
use super::open_epoch::open_shard;
use super::show_messages::{show_last_messages, show_message};
use crate::domain::conversation::{Conversation, ConversationView, Names, Unread};
use crate::domain::ids::{ConversationId, Kind, UserId};
use crate::domain::membership::{Member, Reader, Role};
use crate::domain::preferences::{Preferences, ShownPreferences};
use crate::domain::quote::ShownMessage;
use crate::domain::read_mark::unread;
use crate::domain::refusal::Refusal;
use crate::redis::read_conversation::{ConversationRead, HotConversation, read_conversation};

/// Reads a conversation.
///
/// # Errors
/// [`Refusal::NotFound`] for who is no member, [`Refusal::Dissolved`] for who was one of a group that has ended.
pub async fn view<'a>(stores: &Stores, reader: impl Into<Reader<'a>>, id: &ConversationId) -> Result<ConversationView, Refusal> {
    let reader = reader.into();
    let Some(user) = reader.must_be_member(id.kind()) else { return view_from_outside(stores, reader, id).await };
    let mut view = match hot(stores, user, id).await? {
        Some(hot) => view_of_hot(stores, user, *hot)?,
        None => match views_of_cold(stores, user, std::slice::from_ref(id)).await?.pop() {
            Some(view) => view,
            None => return told_to_strangers(stores, reader, id, Err(Refusal::NotFound)).await,
        },
    };
    show_last_messages(stores, user, std::slice::from_mut(&mut view)).await?;
    Ok(view)
}

/// What was found, except that who was in a group that has ended is told so: wherever it stands, and whatever was asked.
///
/// # Errors
/// Those of `found`, and [`Refusal::Unavailable`] when a store that must be asked is away.
pub(super) async fn told_to_strangers<T>(
    stores: &Stores,
    reader: Reader<'_>,
    id: &ConversationId,
    found: Result<T, Refusal>,
) -> Result<T, Refusal> {
    let (Err(Refusal::NotFound), Kind::Group, Some(user)) = (&found, id.kind(), reader.must_be_member(id.kind())) else { return found };
    let ended = match hot(stores, user, id).await? {
        Some(hot) if !hot.head.conversation.dissolved => false,
        Some(hot) if hot.mark.is_some() => true,
        _ => stores.archive.was_in_ended(id, user).await?,
    };
    if ended { Err(Refusal::Dissolved) } else { found }
}

/// What the host application's server sees of its own conversation: everything, and nothing that belongs to a member.
async fn view_from_outside(stores: &Stores, reader: Reader<'_>, id: &ConversationId) -> Result<ConversationView, Refusal> {
    let (conversation, last) = match hot(stores, reader.user, id).await? {
        Some(hot) if hot.head.made => (hot.head.conversation, hot.last_message),
        _ => (stores.archive.conversation(id).await?.ok_or(Refusal::NotFound)?, None),
    };
    let last = match last {
        None if conversation.head_seq > 0 => stores.archive.messages_at(id, &[conversation.head_seq]).await?.pop(),
        last => last,
    };
    let last_message = match last {
        Some(message) => Some(show_message(stores, reader, message).await?),
        None => None,
    };
    let joined_at = conversation.created_at;
    Ok(ConversationView {
        me: Member {
            user: reader.user.clone(),
            role: Role::Member,
            joined_at,
            joined_seq: 0,
            joined_rev: 0,
            preferences: Preferences::default(),
        },
        outside: true,
        unread_mentions: 0,
        preferences: ShownPreferences::default(),
        read_seq: conversation.head_seq,
        read_at: None,
        unread: Unread::default(),
        last_message,
        names: Names::default(),
        conversation,
    })
}

/// A conversation's facts out of the archive, and the membership of a reader who has to have one; `None` when there is no such
/// conversation for this reader.
///
/// # Errors
/// [`Refusal::Unavailable`] when Postgres is away.
pub(super) async fn archived_facts(
    stores: &Stores,
    reader: Reader<'_>,
    id: &ConversationId,
) -> Result<Option<(Conversation, Option<Member>)>, Refusal> {
    Ok(match reader.must_be_member(id.kind()) {
        Some(user) => stores.archive.membership(id, user).await?.map(|(conversation, member)| (conversation, Some(member))),
        None => stores.archive.conversation(id).await?.map(|conversation| (conversation, None)),
    })
}

/// Reads a conversation's live state; `None` when it is cold.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store is away.
pub async fn hot(stores: &Stores, user: &UserId, id: &ConversationId) -> Result<Option<Box<HotConversation>>, Refusal> {
    match read_conversation(&stores.link, &stores.keys, id, user).await? {
        ConversationRead::Here(hot) => return Ok(Some(hot)),
        ConversationRead::Cold => return Ok(None),
        ConversationRead::StaleEpoch => {}
    }
    // In a new epoch everything that survived is in the archive.
    open_shard(stores, stores.keys.shard_of(id)).await?;
    match read_conversation(&stores.link, &stores.keys, id, user).await? {
        ConversationRead::Here(hot) => Ok(Some(hot)),
        ConversationRead::Cold => Ok(None),
        ConversationRead::StaleEpoch => Err(Refusal::Unavailable("the live store is changing")),
    }
}

/// Reads cold conversations; those the user is no member of are left out.
///
/// # Errors
/// [`Refusal::Unavailable`] when Postgres is away.
pub async fn views_of_cold(stores: &Stores, user: &UserId, ids: &[ConversationId]) -> Result<Vec<ConversationView>, Refusal> {
    Ok(stores.archive.views_of(user, ids, stores.settings.unread_max).await?)
}

/// What a member sees of a live conversation.
///
/// # Errors
/// As [`view`].
pub fn view_of_hot(stores: &Stores, user: &UserId, hot: HotConversation) -> Result<ConversationView, Refusal> {
    if !hot.head.made {
        return Err(Refusal::NotFound);
    }
    let Some(me) = hot.member else {
        // Marks of those who left stay: they tell a former member from a stranger.
        return Err(if hot.head.conversation.dissolved && hot.mark.is_some() { Refusal::Dissolved } else { Refusal::NotFound });
    };
    debug_assert_eq!(&me.user, user);
    let (read_seq, read_at) = hot.mark.unwrap_or((0, 0));
    let conversation = hot.head.conversation;
    let lowest = me.first_visible_seq(&conversation);
    // What was cleared is not unread, whatever the watermark says.
    let seen_to = read_seq.max(lowest - 1);
    Ok(ConversationView {
        unread: unread(conversation.head_seq, seen_to, hot.uncounted, &conversation.voids, stores.settings.unread_max),
        unread_mentions: hot.mentions.min(stores.settings.unread_max),
        preferences: me.preferences.shown(conversation.head_seq, read_seq),
        outside: false,
        read_seq,
        read_at: (read_at > 0).then_some(read_at),
        names: Names::default(),
        last_message: hot.last_message.filter(|m| m.seq >= lowest).map(|message| ShownMessage {
            message,
            quote: None,
            shared: None,
            reader: Some(user.clone()),
        }),
        conversation,
        me,
    })
}
