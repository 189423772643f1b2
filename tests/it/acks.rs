//! How far a message got before the answer: said truly, and never an error for a message that stands.

use std::time::{Duration, Instant};

use reqwest::Method;
use seqline::embedded::{RedisOptions, RedisServer, TempFolder};
use serde_json::json;
use sqlx::Executor as _;

use crate::harness::{Answer, Client, Fleet, PATIENCE, RedisKind, User, eventually};

/// Short, so that what is not reached is told soon.
const DEADLINE: &[&str] = &["--request-deadline-ms", "1500"];

async fn send(client: &Client, group: &str, key: &str, ack: &str) -> Answer {
    let path = format!("/v1/conversations/{group}/messages?ack={ack}");
    client.request(Method::POST, &path, &[], Some(&json!({"client_id": key, "body": "hi"}))).await
}

fn reached(answer: &Answer) -> (u16, &str) {
    (answer.status, answer.header("seqline-ack").unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicated_means_that_every_replica_has_it() {
    let mut fleet = Fleet::start_with(RedisKind::Single, 2, 1, DEADLINE).await;
    let ann = User::new("ann");
    let group = fleet.client(0, &ann).create_group("acks", &["bob"]).await;
    let alone = send(&fleet.client(0, &ann), &group, "alone", "replicated").await;
    assert_eq!(reached(&alone), (202, "accepted"), "there is no replica");

    let folder = TempFolder::new("test-replica").unwrap();
    let primary = &fleet.redis().nodes()[0];
    let options = RedisOptions {
        throw_away: true,
        password: Some(primary.password().to_owned()),
        replica_of: Some(primary.port()),
        ..RedisOptions::default()
    };
    let mut replica = RedisServer::start(folder.path(), &options).await.unwrap();
    let mut tries = 0;
    eventually("a send reaches the replica", PATIENCE, async || {
        tries += 1;
        let sent = send(&fleet.client(1, &ann), &group, &format!("try{tries}"), "replicated").await;
        assert!(matches!(sent.status, 201 | 202), "{}", sent.text);
        sent.status == 201 && sent.header("seqline-ack") == Some("replicated")
    })
    .await;

    replica.process().signal("STOP");
    let begun = Instant::now();
    // Who comes while others wait does not wait for their time and then for one's own.
    let clients = [fleet.client(0, &ann), fleet.client(0, &ann), fleet.client(1, &ann)];
    let sends = ["late", "later", "latest"].into_iter().zip(&clients).enumerate().map(|(place, (key, client))| {
        let group = &group;
        async move {
            tokio::time::sleep(Duration::from_millis(300 * place as u64)).await;
            send(client, group, key, "replicated").await
        }
    });
    let sent = futures_util::future::join_all(sends).await;
    for late in &sent {
        assert_eq!(reached(late), (202, "accepted"), "a replica that does not answer says unknown, not no");
    }
    let late = &sent[0];
    assert!(begun.elapsed() < Duration::from_secs(15));
    replica.process().signal("CONT");
    eventually("the same send is found on the replica", PATIENCE, async || {
        let again = send(&fleet.client(1, &ann), &group, "late", "replicated").await;
        assert_eq!(again.seq(), late.seq());
        reached(&again) == (200, "replicated")
    })
    .await;
    replica.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn archived_waits_for_the_commit_and_retries_join_it() {
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &["--request-deadline-ms", "4000"]).await;
    let ann = User::new("ann");
    let (one, two) = (fleet.client(0, &ann), fleet.client(1, &ann));
    let group = one.create_group("acks", &["bob"]).await;
    assert_eq!(reached(&send(&one, &group, "first", "archived").await), (201, "archived"));

    let mut lock = fleet.database().connect().await;
    lock.execute("BEGIN; LOCK TABLE messages IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let key = uuid::Uuid::now_v7().to_string();
    let sends = (0..11).map(|n| {
        let (client, group, key) = (if n % 2 == 0 { one.clone() } else { two.clone() }, group.clone(), key.clone());
        tokio::spawn(async move { send(&client, &group, &key, "archived").await })
    });
    let answers = futures_util::future::join_all(sends.collect::<Vec<_>>()).await;
    for answer in answers {
        let answer = answer.unwrap();
        assert_eq!((answer.seq(), reached(&answer)), (2, (202, "accepted")));
    }
    lock.execute("ROLLBACK").await.unwrap();
    eventually("the commit names this very row", PATIENCE, async || {
        let again = send(&two, &group, &key, "archived").await;
        assert_eq!(again.seq(), 2);
        reached(&again) == (200, "archived")
    })
    .await;
    let (count,): (i64,) =
        sqlx::query_as("SELECT count(*) FROM messages WHERE conv_id = $1 AND seq = 2").bind(&group).fetch_one(&mut lock).await.unwrap();
    assert_eq!(count, 1);
}
