//! How far others have read, in a conversation of many: told live, without an id, seldom, and in the end right.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::harness::{Client, Event, EventStream, Fleet, PATIENCE, User, eventually, on_both};

/// More than a second: what waits for its turn has come by then.
const QUIET: Duration = Duration::from_millis(1_500);
/// Members of the group besides its owner: eleven, so twelve with the owner, more than the ten up to which readings are kept.
const OTHERS: usize = 11;
const MESSAGES: u64 = 10;

/// A group of twelve, in which the owner said something and everybody knows of it.
async fn spoken_group(fleet: &Fleet, owner: &User, others: &[User]) -> String {
    let names: Vec<&str> = others.iter().map(|user| user.id.as_str()).collect();
    let client = fleet.client(0, owner);
    let group = client.create_group("G", &names).await;
    for n in 0..MESSAGES {
        client.send(&group, &format!("k{n}"), "hi").await.expect(201);
    }
    for user in others {
        let client = fleet.client(1, user);
        eventually("the last message is delivered", PATIENCE, async || seen(&client).await == Some(MESSAGES)).await;
    }
    group
}

/// The seq of the last message in the member's log.
async fn seen(client: &Client) -> Option<u64> {
    let head = client.get("/v1/events/poll?limit=1").await.expect(200).json["next"].clone();
    let epoch = head.as_str()?.split_once('.')?.0.to_owned();
    let all = client.get(&format!("/v1/events/poll?after={epoch}.0-0&limit=200")).await.expect(200).json;
    all["events"].as_array()?.iter().rev().find_map(|event| event["data"]["message"]["seq"].as_u64())
}

async fn live(fleet: &Fleet, gateway: usize, user: &User) -> EventStream {
    let mut stream = fleet.client(gateway, user).stream().open().await;
    stream.wait_for("hello", PATIENCE).await;
    stream
}

/// Who, how far.
fn place(data: &Value) -> (String, u64) {
    assert!(data["read_at"].as_str().unwrap().ends_with('Z'), "{data}");
    (data["user_id"].as_str().unwrap().to_owned(), data["read_seq"].as_u64().unwrap())
}

/// The places in an event without an id; checks that its own are the last of them.
fn places(event: &Event) -> Vec<(String, u64)> {
    assert_eq!((event.name.as_str(), &event.id, event.data.get("id")), ("read.advanced", &None, None), "{event:?}");
    let data = &event.data["data"];
    let places: Vec<_> = data["positions"].as_array().unwrap().iter().map(place).collect();
    assert_eq!(places.last(), Some(&place(data)), "{event:?}");
    places
}

on_both! {
    async fn the_others_get_it_live_and_the_own_devices_from_the_log(fleet: Fleet) {
        let (owner, others) = (User::new("owner"), User::many(OTHERS));
        let group = spoken_group(&fleet, &owner, &others).await;
        let (reader, removed) = (&others[0], &others[1]);
        let mut own = [live(&fleet, 0, reader).await, live(&fleet, 1, reader).await];
        let mut at = [live(&fleet, 0, &owner).await, live(&fleet, 1, &others[2]).await, live(&fleet, 1, removed).await];
        let mut stranger = live(&fleet, 0, &User::new("eve")).await;
        let begin = at[1].last_id().unwrap().to_owned();
        fleet.client(0, reader).read(&group, 4).await.expect(200);
        for stream in &mut at {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!(places(&event), [(reader.id.clone(), 4)]);
            assert_eq!(event.data["conversation_id"], json!(group));
        }
        for stream in &mut own {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert!(event.name == "read.advanced" && event.id.is_some() && event.data["data"].get("positions").is_none(), "{event:?}");
            assert_eq!(place(&event.data["data"]), (reader.id.clone(), 4));
        }
        // Who was removed is told of no reading that comes after.
        fleet.client(1, reader).read(&group, 5).await.expect(200);
        fleet.client(1, &owner).remove(&group, &removed.id).await.expect(204);
        fleet.client(1, reader).read(&group, 6).await.expect(200);
        at[2].wait_for("member.removed", PATIENCE).await;
        assert_eq!(at[2].until_quiet(QUIET).await, vec![]);
        let told = at[1].until_quiet(QUIET).await;
        let last = told.iter().rfind(|event| event.name == "read.advanced").unwrap();
        assert_eq!(places(last), [(reader.id.clone(), 6)]);
        assert_eq!(stranger.until_quiet(Duration::from_millis(100)).await, vec![]);
        // The logs know of it on the own side alone.
        let replayed = fleet.client(0, &others[2]).stream().after(&begin).open().await.until_quiet(Duration::from_millis(600)).await;
        assert!(replayed.iter().any(|e| e.name == "member.removed") && replayed.iter().all(|e| e.name != "read.advanced"), "{replayed:?}");
        let kept: Vec<_> = own[1].until_quiet(Duration::from_millis(100)).await.into_iter().filter(|e| e.name == "read.advanced").collect();
        assert!(kept.len() == 2 && kept.iter().all(|event| event.id.is_some()), "{kept:?}");
    }

    async fn many_readings_are_few_events_and_the_last_has_the_last_places(fleet: Fleet) {
        let (owner, others) = (User::new("owner"), User::many(OTHERS));
        let group = spoken_group(&fleet, &owner, &others).await;
        let mut own = live(&fleet, 1, &others[0]).await;
        let mut watching = [live(&fleet, 0, &owner).await, live(&fleet, 1, &owner).await];
        let begun = Instant::now();
        let reading = others.iter().take(10).enumerate().map(|(n, user)| {
            let (client, group) = (fleet.client(n % 2, user), group.clone());
            async move {
                for seq in 1..=MESSAGES {
                    client.read(&group, seq).await.expect(200);
                }
            }
        });
        futures_util::future::join_all(reading).await;
        let expected: BTreeMap<String, u64> = others.iter().take(10).map(|user| (user.id.clone(), MESSAGES)).collect();
        for stream in &mut watching {
            let (mut known, mut events) = (BTreeMap::new(), 0);
            while known != expected {
                let event = stream.next_event(PATIENCE).await.unwrap();
                for (reader, seq) in places(&event) {
                    let before = known.insert(reader, seq).unwrap_or(0);
                    assert!(before <= seq, "back from {before}: {event:?}");
                }
                events += 1;
            }
            let seconds = begun.elapsed().as_secs();
            assert!(events <= seconds + 2 && events < 50, "{events} events in {seconds} s");
            assert_eq!(stream.until_quiet(QUIET).await, vec![], "nothing is left to tell");
        }
        let kept: Vec<_> = own.until_quiet(Duration::from_millis(300)).await.into_iter().filter(|event| event.id.is_some()).collect();
        let kept: Vec<_> = kept.iter().map(|event| place(&event.data["data"])).collect();
        assert_eq!(kept, (1..=MESSAGES).map(|seq| (others[0].id.clone(), seq)).collect::<Vec<_>>());
    }
}
