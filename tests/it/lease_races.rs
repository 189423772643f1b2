//! Gateways that race for a conversation's numbers, and one that sleeps in the middle.

use seqline::actions::archive_outbox::archive_outboxes;
use seqline::actions::open_epoch::open_shard;
use seqline::actions::send_message::{Ack, SendRequest, send_message};
use seqline::domain::ids::{ClientKey, ConversationId, UserId};
use seqline::domain::message::Draft;
use seqline::postgres::LeaseGrant;
use seqline::redis::close_conversation::{CloseRequest, Closing, close_conversation};
use seqline::redis::discard_conversation::discard_conversation;
use seqline::redis::drop_conversation::drop_conversation;
use seqline::redis::install_conversation::{Installation, Installed, install_conversation};

use crate::harness::{StorePair, on_both};

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn first_message(conversation: &ConversationId, key: &str) -> SendRequest {
    let client_id = ClientKey::parse(key).unwrap();
    let draft = Draft::text(client_id.clone(), key.into());
    SendRequest {
        sender: user("ann"),
        service: false,
        conversation: conversation.clone(),
        peer: Some(user("bob")),
        client_id,
        content: Ok(draft),
        ack: Ack::Accepted,
    }
}

/// Between a racer's look into Redis and its lease lies any part of another one's way: look, lease, load, install, mark, open.
async fn seqs_of_racers(pair: &StorePair, id: &ConversationId, sender: &str, peer: &str) -> Vec<u64> {
    let mut racers = tokio::task::JoinSet::new();
    for n in 0..10_u64 {
        let stores = if n % 2 == 0 { pair.one.clone() } else { pair.two.clone() };
        let mut request = first_message(id, &format!("k{n}"));
        (request.sender, request.peer) = (user(sender), Some(user(peer)));
        racers.spawn(async move {
            tokio::time::sleep(std::time::Duration::from_micros(n * 700)).await;
            send_message(&stores, request).await.unwrap().message.seq
        });
    }
    let mut seqs = racers.join_all().await;
    seqs.sort_unstable();
    seqs
}

on_both! {
    async fn who_comes_late_to_a_first_message_makes_no_void_of_living_numbers(pair: StorePair) {
        for round in 0..25 {
            let (ann, bob) = (format!("ann{round}"), format!("bob{round}"));
            let id = ConversationId::of_pair(&user(&ann), &user(&bob)).unwrap();
            assert_eq!(seqs_of_racers(&pair, &id, &ann, &bob).await, (1..=10).collect::<Vec<_>>(), "round {round}");
        }
        let mut connection = pair.database.connect().await;
        let count = |sql: &'static str| sqlx::query_scalar::<_, i64>(sql);
        assert_eq!(count("SELECT count(*) FROM voids").fetch_one(&mut connection).await.unwrap(), 0);
        assert_eq!(count("SELECT count(*) FROM leases WHERE state <> 'installed'").fetch_one(&mut connection).await.unwrap(), 0);
        assert_eq!(count("SELECT count(*) FROM leases").fetch_one(&mut connection).await.unwrap(), 25);
    }

    async fn what_a_sleeper_installs_under_an_ended_lease_gives_out_no_number(pair: StorePair) {
        let stores = &pair.one;
        let id = ConversationId::of_pair(&user("ann"), &user("bob")).unwrap();
        let shard = stores.keys.shard_of(&id);
        // The sleeper has its lease and falls asleep before it installs.
        let epoch = open_shard(stores, shard).await.unwrap();
        let LeaseGrant::Granted(lease) = stores.archive.take_lease(&id, shard, epoch, 10_000, None).await.unwrap() else { panic!("no lease") };
        // Others get the same lease, say three things, and the conversation is archived and cooled.
        for n in 1..=3 {
            assert_eq!(send_message(&pair.two, first_message(&id, &format!("k{n}"))).await.unwrap().message.seq, n);
        }
        assert_eq!(archive_outboxes(stores, &[shard], 100).await.unwrap().entries, 3);
        let now = stores.clock.now() + 1_000;
        let request = CloseRequest { token: "t", now, idle_at: now, abandoned_at: 0 };
        let closed = close_conversation(&stores.link, &stores.keys, &id, request).await.unwrap();
        assert!(matches!(closed, Closing::Closed(ref closed) if closed.head == 3), "{closed:?}");
        assert!(stores.archive.end_lease(&id, epoch, 3).await.unwrap());
        assert!(drop_conversation(&stores.link, &stores.keys, &id, "t").await.unwrap());
        // The sleeper wakes.
        let what = Installation { id: id.clone(), epoch, lease: (lease.from, lease.to), archived: None };
        assert_eq!(install_conversation(&stores.link, &stores.keys, now, &what).await.unwrap(), Installed::Installed);
        for n in 4..=6 {
            assert_eq!(send_message(&pair.two, first_message(&id, &format!("k{n}"))).await.unwrap().message.seq, n);
        }
        assert!(send_message(stores, first_message(&id, "k2")).await.unwrap().replayed);
    }

    async fn only_what_stands_closed_under_that_lease_is_discarded(pair: StorePair) {
        let stores = &pair.one;
        let id = ConversationId::of_pair(&user("ann"), &user("bob")).unwrap();
        let epoch = open_shard(stores, stores.keys.shard_of(&id)).await.unwrap();
        let discard = async |epoch, from| discard_conversation(&stores.link, &stores.keys, &id, epoch, from).await.unwrap();
        assert!(!discard(epoch, 1).await, "nothing is there");
        let what = Installation { id: id.clone(), epoch, lease: (1, 10), archived: None };
        let install = async || install_conversation(&stores.link, &stores.keys, 1, &what).await.unwrap();
        assert_eq!(install().await, Installed::Installed);
        assert!(!discard(epoch, 2).await && !discard(epoch + 1, 1).await);
        assert!(discard(epoch, 1).await);
        assert_eq!(install().await, Installed::Installed, "it was gone");
        assert!(discard(epoch, 1).await);
        assert_eq!(send_message(stores, first_message(&id, "k")).await.unwrap().message.seq, 1);
        assert!(!discard(epoch, 1).await, "it is open");
    }
}
