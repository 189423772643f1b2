//! The accident that seqline exists for: two gateways gave one number to two messages, and nobody noticed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use sqlx::Row;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::harness::{Fleet, User, eventually, on_both};

/// Clients at each of the two gateways.
const CLIENTS: usize = 50;
/// Messages that each client sends.
const ROUNDS: usize = 25;
/// Members that listen, alternating between the gateways.
const LISTENERS: usize = 6;
/// Ten times what a loaded machine was seen to need.
const PATIENCE: Duration = Duration::from_secs(120);

on_both! {
    async fn two_gateways_never_give_one_number_to_two_messages(fleet: Fleet) {
        let users = User::many(2 * CLIENTS);
        let names: Vec<&str> = users.iter().skip(1).map(|u| u.id.as_str()).collect();
        let group = fleet.client(0, &users[0]).create_group("everybody", &names).await;
        let mut streams = Vec::new();
        for (n, user) in users.iter().take(LISTENERS).enumerate() {
            let mut stream = fleet.client(n, user).stream().open().await;
            stream.wait_for("hello", PATIENCE).await;
            streams.push(stream);
        }

        let barrier = Arc::new(Barrier::new(2 * CLIENTS));
        let mut senders = JoinSet::new();
        for (n, user) in users.iter().enumerate() {
            let (client, barrier, group) = (fleet.client(n, user).kept_alive(), Arc::clone(&barrier), group.clone());
            senders.spawn(async move {
                let mut seqs = Vec::new();
                for round in 0..ROUNDS {
                    barrier.wait().await;
                    let key = format!("{n}-{round}");
                    seqs.push((client.send(&group, &key, &format!("{n} says {round}")).await.expect(201).seq(), key));
                }
                seqs
            });
        }
        let listeners: Vec<_> = streams.into_iter().map(|mut stream| {
            tokio::spawn(async move {
                let mut heard = Vec::new();
                while heard.len() < 2 * CLIENTS * ROUNDS {
                    let message = stream.next_message(PATIENCE).await;
                    heard.push((message["seq"].as_u64().unwrap(), message["client_id"].as_str().unwrap().to_owned()));
                }
                heard
            })
        }).collect();
        let mut answered: Vec<(u64, String)> = senders.join_all().await.into_iter().flatten().collect();
        answered.sort_unstable();

        let count = 2 * CLIENTS * ROUNDS;
        let numbers: Vec<u64> = answered.iter().map(|(seq, _)| *seq).collect();
        assert_eq!(numbers, (1..=count as u64).collect::<Vec<_>>(), "each number once");
        for listener in listeners {
            assert_eq!(listener.await.unwrap(), answered, "every member hears all of it, once, in that order");
        }
        for gateway in 0..2 {
            let history = fleet.client(gateway, &users[1]).whole_history(&group).await;
            let told: Vec<(u64, String)> = history.iter().map(|m| (m["seq"].as_u64().unwrap(), text(&m["client_id"]))).collect();
            assert_eq!(told, answered, "and reads the same at gateway {gateway}");
        }
        let mut database = fleet.database().connect().await;
        eventually("everything is archived", PATIENCE, async || {
            let row = sqlx::query("SELECT count(*) FROM messages WHERE conv_id = $1").bind(&group).fetch_one(&mut database).await.unwrap();
            row.get::<i64, _>(0) == count as i64
        }).await;
        let rows = sqlx::query("SELECT seq, client_id FROM messages WHERE conv_id = $1 ORDER BY seq").bind(&group).fetch_all(&mut database).await.unwrap();
        let kept: Vec<(u64, String)> = rows.iter().map(|r| (u64::try_from(r.get::<i64, _>(0)).unwrap(), r.get(1))).collect();
        assert_eq!(kept, answered, "and Postgres keeps the same");
    }

    async fn what_was_just_sent_is_read_at_the_other_gateway(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (one, two) = (fleet.client(0, &ann).kept_alive(), fleet.client(1, &bob).kept_alive());
        let group = one.create_group("two", &["bob"]).await;
        for round in 0..500 {
            let seq = one.send(&group, &format!("k{round}"), "hi").await.expect(201).seq();
            let page = two.history(&group, &format!("after={}", seq - 1)).await.expect(200);
            assert_eq!(page.items().len(), 1, "round {round}");
            assert_eq!(page.items()[0]["seq"], seq);
        }
    }

    async fn two_identical_sends_at_once_are_one_message(fleet: Fleet) {
        let ann = User::new("ann");
        let group = fleet.client(0, &ann).create_group("two", &["bob"]).await;
        let (one, two) = (fleet.client(0, &ann).kept_alive(), fleet.client(1, &ann).kept_alive());
        let mut ids = HashSet::new();
        for round in 0..200 {
            let key = uuid::Uuid::now_v7().to_string();
            let barrier = Arc::new(Barrier::new(2));
            let send = |client: crate::harness::Client| {
                let (group, key, barrier) = (group.clone(), key.clone(), Arc::clone(&barrier));
                tokio::spawn(async move {
                    barrier.wait().await;
                    client.send(&group, &key, "once").await
                })
            };
            let (a, b) = (send(one.clone()), send(two.clone()));
            let (a, b) = (a.await.unwrap(), b.await.unwrap());
            let mut statuses = [a.status, b.status];
            statuses.sort_unstable();
            assert_eq!(statuses, [200, 201], "round {round}: {} {}", a.text, b.text);
            assert_eq!(a.json, b.json);
            let replay = if a.status == 200 { &a } else { &b };
            assert_eq!(replay.header("idempotency-replayed"), Some("true"));
            ids.insert(text(&a.json["id"]));
        }
        assert_eq!(ids.len(), 200);
        assert_eq!(one.conversation(&group).await.json["head_seq"], 200);
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}
