//! Polls: the same log as JSON.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::log_writer::LogWriter;
use crate::harness::{Client, Fleet, User, on_both};

async fn poll(client: &Client, query: &str) -> Value {
    client.get(&format!("/v1/events/poll?{query}")).await.expect(200).json
}

fn next(answer: &Value) -> String {
    answer["next"].as_str().unwrap().to_owned()
}

fn numbers(answer: &Value) -> Vec<u64> {
    answer["events"].as_array().unwrap().iter().map(|e| e["data"]["n"].as_u64().unwrap()).collect()
}

on_both! {
    async fn pages_hold_every_event_once(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let client = fleet.client(0, &User::new("ann"));
        let empty = poll(&client, "").await;
        assert_eq!((&empty["events"], &empty["resync"]), (&json!([]), &Value::Null));
        writer.write(252).await;
        let (mut place, mut got) = (next(&empty), vec![]);
        loop {
            let page = poll(&client, &format!("after={place}&limit=100")).await;
            if numbers(&page).is_empty() { break; }
            assert_eq!(page["events"].as_array().unwrap().last().unwrap()["id"], page["next"]);
            got.extend(numbers(&page));
            place = next(&page);
        }
        assert_eq!(got, (1..=252).collect::<Vec<_>>());
        assert_eq!(numbers(&poll(&client, &format!("after={}", next(&empty))).await).len(), 50, "the default");
    }

    async fn waiting_ends_with_the_first_event_or_the_time(fleet: Fleet) {
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        let client = fleet.client(1, &User::new("ann"));
        let place = next(&poll(&client, "").await);
        let begun = Instant::now();
        let query = format!("after={place}&wait=20");
        let (answer, _) = tokio::join!(poll(&client, &query), async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            writer.write(2).await
        });
        assert!(!numbers(&answer).is_empty() && begun.elapsed() < Duration::from_secs(10), "{answer} after {:?}", begun.elapsed());
        let begun = Instant::now();
        let quiet = poll(&client, "wait=1").await;
        assert!(numbers(&quiet).is_empty() && begun.elapsed() >= Duration::from_millis(990), "{quiet}");
        // Sent between the end of one wait and the begin of the next, and without a wake-up.
        let place = next(&quiet);
        writer.wakes = false;
        writer.write(1).await;
        assert_eq!(numbers(&poll(&client, &format!("after={place}&wait=20")).await), [3]);
    }

    async fn messages_come_as_in_streams(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let client = fleet.client(1, &bob);
        let mut place = next(&poll(&client, "").await);
        let sent = fleet.client(0, &ann).send_to_peer("bob", "k1", "hello").await.expect(201);
        let mut kinds = vec![];
        while kinds.last().is_none_or(|kind| kind != "message.created") {
            let answer = poll(&client, &format!("after={place}&wait=20&limit=1")).await;
            let event = &answer["events"][0];
            if event["type"] == "message.created" {
                assert_eq!(event["data"]["message"], sent.json);
            }
            kinds.push(event["type"].as_str().unwrap().to_owned());
            place = next(&answer);
        }
    }

    async fn a_place_that_does_not_hold_is_a_resync(fleet: Fleet) {
        let client = fleet.client(0, &User::new("ann"));
        let mut writer = LogWriter::new(&fleet.redis_url(), "ann").await;
        writer.write(3).await;
        let answer = poll(&client, "after=1-1&wait=20").await;
        assert_eq!((&answer["events"], &answer["resync"]["reason"]), (&json!([]), &json!("lost")));
        assert_eq!(answer["resync"]["head"], answer["next"]);
        writer.write(1).await;
        assert_eq!(numbers(&poll(&client, &format!("after={}", next(&answer))).await), [4]);
    }

    async fn what_cannot_be_read_is_refused(fleet: Fleet) {
        let client = fleet.client(0, &User::new("ann"));
        for (query, code) in [
            ("after=abc", "invalid_cursor"), ("after=", "invalid_cursor"), ("after=5-", "invalid_cursor"), ("after=%24", "invalid_cursor"),
            ("limit=0", "invalid_parameter"), ("limit=201", "invalid_parameter"), ("wait=31", "invalid_parameter"), ("wait=-1", "invalid_parameter"),
            ("wait=x", "invalid_parameter"), ("device=", "invalid_parameter"), ("afther=1-1", "invalid_parameter"),
        ] {
            client.get(&format!("/v1/events/poll?{query}")).await.expect_problem(400, code);
        }
    }
}
