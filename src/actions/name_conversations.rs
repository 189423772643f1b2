//! Says what conversations are called: a pair's after the other one, a group's without a title after its members. Never a reason to fail:
//! what cannot be looked up in time is called by ids.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use quick_cache::sync::Cache;

use super::Stores;
use super::read_profiles::profiles_of;
use crate::domain::conversation::{ConversationView, Names};
use crate::domain::ids::{ConversationId, Kind, UserId};
use crate::domain::profile::{fold, name_from_members};
use crate::redis::read_members::{MembersRead, read_members};

/// Members after whom a group is called.
const NAMED_MAX: usize = 3;
/// Members remembered of a group: one more, because the one who looks is left out.
const FIRST_MAX: usize = NAMED_MAX + 1;
/// Time for which they are remembered; a change of their number shows at once.
const FIRST_LIVE: Duration = Duration::from_secs(10);
/// Groups of which they are remembered.
const GROUPS_MAX: usize = 20_000;
/// Groups read from Redis at a time.
const READS_AT_ONCE: usize = 16;

/// The first members of groups without a title.
pub(crate) struct FirstMembers(Cache<ConversationId, (Instant, u64, Vec<UserId>)>);

impl std::fmt::Debug for FirstMembers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("FirstMembers").finish_non_exhaustive()
    }
}

impl FirstMembers {
    pub(crate) fn new() -> Self {
        Self(Cache::new(GROUPS_MAX))
    }

    fn of(&self, id: &ConversationId, count: u64) -> Option<Vec<UserId>> {
        let (read_at, members, first) = self.0.get(id)?;
        (members == count && read_at.elapsed() < FIRST_LIVE).then_some(first)
    }
}

/// Fills in what each of these conversations is called by the one who looks at it.
pub async fn name_conversations(stores: &Stores, views: &mut [ConversationView]) {
    let first = first_members(stores, views).await;
    let mut shown: HashSet<&UserId> = first.values().flatten().collect();
    shown.extend(views.iter().filter_map(|view| view.conversation.peer_of(&view.me.user)));
    let shown: Vec<UserId> = shown.into_iter().cloned().collect();
    let profiles = profiles_of(stores, shown).await;
    let name_of = |user: &UserId| profiles.get(user).and_then(|profile| profile.name.clone()).unwrap_or_else(|| user.to_string());
    for view in views {
        let conversation = &view.conversation;
        view.names = match conversation.peer_of(&view.me.user) {
            Some(peer) => Names { called: Some(name_of(peer)), peer: profiles.get(peer).cloned() },
            None => {
                let others = first.get(&conversation.id).into_iter().flatten().filter(|user| **user != view.me.user);
                let names: Vec<String> = others.take(NAMED_MAX).map(name_of).collect();
                let from_members = name_from_members(names.iter().map(String::as_str));
                Names { called: conversation.title.clone().or(from_members), peer: None }
            }
        };
    }
}

/// The same for one.
pub async fn name_conversation(stores: &Stores, mut view: ConversationView) -> ConversationView {
    name_conversations(stores, std::slice::from_mut(&mut view)).await;
    view
}

/// Those of `ids` that have a member, other than `user`, whose name holds `text`; none while the archive is away.
pub async fn conversations_naming(stores: &Stores, user: &UserId, ids: &[ConversationId], text: &str) -> HashSet<ConversationId> {
    let found = stores.profiles.ask(stores.archive.conversations_naming(user, ids, &fold(text))).await;
    found.into_iter().flatten().collect()
}

fn is_untitled_group(view: &ConversationView) -> bool {
    view.conversation.kind() == Kind::Group && view.conversation.title.is_none()
}

/// The earliest members of each, by when they joined.
async fn first_members(stores: &Stores, views: &[ConversationView]) -> HashMap<ConversationId, Vec<UserId>> {
    let mut found = HashMap::new();
    let mut unknown = Vec::new();
    for view in views.iter().filter(|view| is_untitled_group(view)) {
        let conversation = &view.conversation;
        match stores.first_members.of(&conversation.id, conversation.member_count) {
            Some(first) => {
                found.insert(conversation.id.clone(), first);
            }
            None => unknown.push((conversation.id.clone(), conversation.member_count, view.me.user.clone())),
        }
    }
    let reads = stream::iter(unknown).map(|(id, count, user)| async move {
        let read = read_members(&stores.link, &stores.keys, &id, &user).await;
        (id, count, read.ok())
    });
    let read: Vec<_> = reads.buffered(READS_AT_ONCE).collect().await;
    let mut cold = Vec::new();
    for (id, count, read) in read {
        match read {
            Some(MembersRead::Here(hot)) => {
                let mut members = hot.members;
                members.sort_by(|a, b| (a.joined_at, &a.user).cmp(&(b.joined_at, &b.user)));
                let first: Vec<UserId> = members.into_iter().take(FIRST_MAX).map(|member| member.user).collect();
                stores.first_members.0.insert(id.clone(), (Instant::now(), count, first.clone()));
                found.insert(id, first);
            }
            _ => cold.push((id, count)),
        }
    }
    if !cold.is_empty() {
        let ids: Vec<ConversationId> = cold.iter().map(|(id, _)| id.clone()).collect();
        let mut archived: HashMap<ConversationId, Vec<UserId>> = HashMap::new();
        for (id, user) in stores.profiles.ask(stores.archive.first_members_of(&ids, FIRST_MAX as u64)).await.into_iter().flatten() {
            archived.entry(id).or_default().push(user);
        }
        for (id, count) in cold {
            if let Some(first) = archived.remove(&id) {
                stores.first_members.0.insert(id.clone(), (Instant::now(), count, first.clone()));
                found.insert(id, first);
            }
        }
    }
    found
}
