//! What tests of workers have in common: people who talk, and workers that are moved by hand.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use seqline::actions::Stores;
use seqline::actions::make_conversation::{GroupWish, make_group};
use seqline::actions::send_message::{Ack, SendRequest, send_message};
use seqline::domain::conversation::History;
use seqline::domain::event::EventType;
use seqline::domain::ids::{ClientKey, ConversationId, Seq, ShardId, UserId};
use seqline::domain::message::Draft;
use seqline::domain::position::EntryId;
use seqline::domain::refusal::Refusal;
use seqline::redis::keys;
use seqline::redis::read_log::read_log;
use seqline::redis::read_shard::{ShardState, read_shard};
use seqline::redis::reply::Reply;
use seqline::workers::WorkError;
use seqline::workers::archive_messages::ArchiveMessages;
use seqline::workers::dispatch_events::DispatchShard;
use seqline::workers::news::News;
use seqline::workers::own_shards::Owned;
use seqline::workers::recipients::Recipients;
use tokio::sync::watch;

use crate::harness::PrivateRedis;

pub fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

pub async fn group(stores: &Arc<Stores>, owner: &str, members: &[&str]) -> ConversationId {
    let members = members.iter().map(|m| user(m)).collect();
    let wish = GroupWish { title: None, members, history: History::All, key: None };
    make_group(stores, &user(owner), &wish).await.unwrap().view.conversation.id
}

pub async fn try_send(stores: &Arc<Stores>, sender: &str, id: &ConversationId, key: &str, body: &str) -> Result<Seq, Refusal> {
    let client_id = ClientKey::parse(key).unwrap();
    let draft = Draft::text(client_id.clone(), body.into());
    let request = SendRequest {
        sender: user(sender),
        service: false,
        conversation: id.clone(),
        peer: None,
        client_id,
        content: Ok(draft),
        ack: Ack::Accepted,
    };
    send_message(stores, request).await.map(|outcome| outcome.message.seq)
}

/// Sends `k<n>` for each n, one after the other.
pub async fn send_run(stores: &Arc<Stores>, sender: &str, id: &ConversationId, numbers: std::ops::RangeInclusive<u32>) {
    for n in numbers {
        try_send(stores, sender, id, &format!("k{n}"), &format!("m{n}")).await.unwrap();
    }
}

pub fn shards(stores: &Stores) -> Vec<ShardId> {
    (0..stores.keys.shards).map(ShardId).collect()
}

pub fn all_owned(stores: &Stores) -> watch::Receiver<Owned> {
    let (sender, view) = watch::channel(Arc::new(shards(stores).into_iter().collect::<BTreeSet<_>>()));
    // The view stays as it is.
    std::mem::forget(sender);
    view
}

pub fn dispatcher(stores: &Arc<Stores>, shard: ShardId) -> DispatchShard {
    DispatchShard::new(Arc::clone(stores), shard, Arc::new(Recipients::new(Arc::clone(stores))), Arc::new(News::default()))
}

/// Dispatches everything there is.
pub async fn dispatch_all(stores: &Arc<Stores>) {
    for shard in shards(stores) {
        let mut dispatcher = dispatcher(stores, shard);
        while dispatcher.dispatch_once(1).await.unwrap() > 0 {}
    }
}

pub fn archiver(stores: &Arc<Stores>) -> ArchiveMessages {
    ArchiveMessages::new(Arc::clone(stores), all_owned(stores), Arc::new(News::default()))
}

/// Archives everything there is.
pub async fn archive_all(stores: &Arc<Stores>) {
    let mut archiver = archiver(stores);
    let mut failures = 0;
    loop {
        match archiver.archive_once(&shards(stores)).await {
            Ok(true) => {}
            Ok(false) => return,
            // A loaded machine may time out; the worker tries again, and so does the test.
            Err(WorkError::Redis(_)) if failures < 20 => {
                failures += 1;
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

pub async fn state(stores: &Stores, shard: ShardId) -> ShardState {
    read_shard(&stores.link, shard).await.unwrap()
}

/// Everything on a user's log.
pub async fn log(stores: &Stores, name: &str) -> Vec<(EventType, ConversationId, Seq)> {
    let page = read_log(&stores.link, &stores.keys, &user(name), Some(EntryId::default()), 100_000).await.unwrap();
    page.entries.into_iter().filter_map(|entry| entry.pointer).map(|p| (p.kind, p.conversation, p.seq)).collect()
}

/// The seqs of a conversation's messages on a user's log, as they stand there.
pub async fn heard(stores: &Stores, name: &str, id: &ConversationId) -> Vec<Seq> {
    let of = |(kind, conversation, seq)| (kind == EventType::MessageCreated && &conversation == id).then_some(seq);
    log(stores, name).await.into_iter().filter_map(of).collect()
}

/// One plain command on the node of its first argument.
pub async fn redis(stores: &Stores, name: &'static str, args: &[&str]) -> Reply {
    let list = args.iter().map(|a| Bytes::copy_from_slice(a.as_bytes())).collect();
    stores.link.command(name, args[0], list).await.unwrap()
}

/// A field of a conversation's head.
pub async fn head_field(stores: &Stores, id: &ConversationId, field: &str) -> Option<String> {
    let reply = redis(stores, "HGET", &[&stores.keys.conversation(id).head, field]).await;
    reply.present().map(|text| text.as_str().unwrap().to_owned())
}

/// Takes a cursor away, as if a worker had ended before it moved it.
pub async fn forget_cursor(stores: &Stores, cursor: &str) {
    for shard in shards(stores) {
        redis(stores, "HDEL", &[&keys::shard_info(shard), cursor]).await;
    }
}

/// A name, made of `stem`, whose user lives in a partition of the node that `there` picks.
pub async fn user_on(redis: &PrivateRedis, stores: &Stores, stem: &str, there: impl Fn(usize) -> bool) -> String {
    for n in 0..1_000 {
        let name = format!("{stem}{n}");
        if there(node_of(redis, &stores.keys.user(&user(&name)).log).await) {
            return name;
        }
    }
    panic!("no such user");
}

/// The number of the master that holds a key.
pub async fn node_of(redis: &PrivateRedis, key: &str) -> usize {
    let answers = redis.on_every_node(&["TYPE", key]).await;
    answers.iter().position(|answer| matches!(answer.text(), Some(text) if !text.starts_with("MOVED"))).unwrap()
}
