//! What members set for themselves: each for oneself, whole with its event, the same in every answer, cold or warm.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::harness::{Answer, Client, Fleet, MadeOn, PATIENCE, RedisKind, User, eventually, on_both};

/// For what must not come: well above what it takes to come.
const QUIET: Duration = Duration::from_millis(400);

async fn prefer(client: &Client, conversation: &str, what: &Value) -> Answer {
    client.put(&format!("/v1/conversations/{conversation}/preferences"), Some(what)).await
}

async fn listed(client: &Client, query: &str) -> Vec<String> {
    let page = client.get(&format!("/v1/conversations?{query}")).await.expect(200);
    page.items().iter().map(|c| c["id"].as_str().unwrap().to_owned()).collect()
}

async fn me(client: &Client, conversation: &str) -> Value {
    client.conversation(conversation).await.expect(200).json["me"].clone()
}

fn values(data: &Value) -> Value {
    json!({
        "muted": data["muted"], "pinned": data["pinned"], "hidden": data["hidden"],
        "marked_unread": data["marked_unread"], "cleared_to": data["cleared_to"],
    })
}

/// A fleet whose conversations leave Redis almost at once, and whose windows are short.
struct Cooling(Fleet);

impl MadeOn for Cooling {
    async fn made_on(kind: RedisKind) -> Self {
        Self(Fleet::start_with(kind, 2, 1, &["--cool-after", "1", "--window-messages", "4"]).await)
    }
}

impl Cooling {
    /// Waits until a conversation has left Redis.
    async fn cold(&self, conversation: &str) {
        eventually("it has left Redis", PATIENCE, async || self.0.redis_ref().keys(&format!("conv:*}}:{conversation}")).await.is_empty())
            .await;
    }
}

on_both! {
    async fn they_are_ones_own_and_told_to_ones_own_devices_alone(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("set", &["bob"]).await;
        a.send(&group, "k1", "one").await.expect(201);
        let open = async |client: &Client| client.stream().with("last_event_id", client.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        let (mut own, mut others) = (open(&fleet.client(0, &bob)).await, open(&a).await);
        let before = b.conversation(&group).await.expect(200).json;
        let set = prefer(&b, &group, &json!({"muted": true, "pinned": true})).await.expect(200);
        assert_eq!(values(&set.json["me"]), json!({"muted": true, "pinned": true, "hidden": false, "marked_unread": false, "cleared_to": 0}));
        assert!(set.json["rev"].as_u64() > before["rev"].as_u64(), "it shows in the rev");
        assert_eq!((&set.json["updated_at"], &set.json["head_seq"]), (&before["updated_at"], &before["head_seq"]), "it is no activity");
        let event = own.wait_for("preferences.changed", PATIENCE).await;
        assert_eq!((&event.data["data"], event.id.is_some()), (&values(&set.json["me"]), true));
        assert_eq!((&event.data["conversation_id"], &event.data["rev"]), (&json!(group), &set.json["rev"]));
        for (gateway, client) in [(0, &bob), (1, &bob)] {
            assert_eq!(me(&fleet.client(gateway, client), &group).await, set.json["me"]);
        }
        assert_eq!(me(&a, &group).await["muted"], false, "nobody else's");
        for nothing in [json!({}), json!({"muted": true}), json!({"pinned": true, "hidden": false}), json!({"muted": null}), json!({"cleared_to": 0})] {
            assert_eq!(prefer(&b, &group, &nothing).await.expect(200).json["rev"], set.json["rev"], "{nothing}");
        }
        assert!(own.until_quiet(QUIET).await.iter().all(|e| e.name != "preferences.changed"));
        assert!(others.until_quiet(QUIET).await.iter().all(|e| e.name != "preferences.changed"));

        let stranger = fleet.client(0, &User::new("eve"));
        prefer(&stranger, &group, &json!({"muted": true})).await.expect_problem(404, "not_found");
        prefer(&stranger, &group, &json!({"mute": true})).await.expect_problem(404, "not_found");
        assert_eq!(prefer(&b, &group, &json!({"mute": true})).await.expect_problem(422, "unknown_field").json["field"], "mute");
        for wrong in [json!({"muted": 1}), json!({"cleared_to": -1}), json!({"cleared_to": "1"})] {
            prefer(&b, &group, &wrong).await.expect_problem(422, "invalid_field");
        }
    }

    async fn two_gateways_that_set_different_ones_at_once_are_both_heard(fleet: Fleet) {
        let bob = User::new("bob");
        let group = fleet.client(0, &User::new("ann")).create_group("both", &["bob"]).await;
        let at = [fleet.client(0, &bob), fleet.client(1, &bob)];
        let mut stream = at[0].stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        for round in 0..20 {
            let yes = round % 2 == 0;
            let (one, two) = (json!({"muted": yes}), json!({"pinned": yes}));
            let (one, two) = tokio::join!(prefer(&at[0], &group, &one), prefer(&at[1], &group, &two));
            let newest = if one.json["rev"].as_u64() > two.json["rev"].as_u64() { one } else { two };
            let now = me(&at[round % 2], &group).await;
            assert_eq!((&now["muted"], &now["pinned"]), (&json!(yes), &json!(yes)), "round {round}");
            newest.expect(200);
            // Two events, and the later one tells what both came to.
            stream.wait_for("preferences.changed", PATIENCE).await;
            let last = stream.wait_for("preferences.changed", PATIENCE).await;
            assert_eq!(last.data["data"], values(&now));
        }
    }

    async fn a_hidden_conversation_comes_back_with_the_next_message(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("hide", &["bob"]).await;
        a.send(&group, "k1", "one").await.expect(201);
        eventually("it is in the list", PATIENCE, async || listed(&b, "").await == [group.clone()]).await;
        for (n, act) in ["other", "own", "timeline"].into_iter().enumerate() {
            prefer(&b, &group, &json!({"hidden": true})).await.expect(200);
            assert_eq!((listed(&b, "").await, listed(&b, "hidden=true").await), (vec![], vec![group.clone()]));
            assert_eq!(listed(&fleet.client(0, &bob), "q=hide").await, Vec::<String>::new());
            assert_eq!(listed(&a, "").await, std::slice::from_ref(&group), "for bob alone");
            assert_eq!(b.get("/v1/unread").await.json["total"], 0);
            b.history(&group, "").await.expect(200);
            match act {
                "other" => drop(a.send(&group, "k2", "two").await.expect(201)),
                "own" => drop(b.send(&group, "k3", "three").await.expect(201)),
                _ => drop(a.invite(&group, "cid").await.expect(201)),
            }
            assert_eq!(me(&fleet.client(n % 2, &bob), &group).await["hidden"], false, "{act}");
            assert_eq!((listed(&b, "").await, listed(&b, "hidden=true").await), (vec![group.clone()], vec![]));
        }
        prefer(&b, &group, &json!({"hidden": true})).await.expect(200);
        prefer(&b, &group, &json!({"hidden": false})).await.expect(200);
        assert_eq!(listed(&b, "hidden=false").await, [group]);
        b.get("/v1/conversations?hidden=1").await.expect_problem(400, "invalid_parameter");
    }

    async fn muted_and_marked_ones_count_as_said(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let (loud, quiet) = (a.create_group("loud", &["bob"]).await, a.create_group("quiet", &["bob"]).await);
        for (group, n) in [(&loud, 1), (&quiet, 2), (&quiet, 3)] {
            a.send(group, &format!("k{n}"), "text").await.expect(201);
        }
        let totals = async || b.get("/v1/unread").await.expect(200).json;
        eventually("both are in the list", PATIENCE, async || totals().await["conversations"] == 2).await;
        prefer(&b, &quiet, &json!({"muted": true})).await.expect(200);
        assert_eq!(totals().await, json!({"total": 1, "conversations": 1, "more": false, "muted": {"total": 2, "conversations": 1}}));
        b.read(&loud, 1).await.expect(200);
        b.read(&quiet, 2).await.expect(200);
        prefer(&b, &loud, &json!({"marked_unread": true})).await.expect(200);
        assert_eq!(totals().await, json!({"total": 0, "conversations": 1, "more": false, "muted": {"total": 0, "conversations": 0}}));
        // A read that has nowhere to go takes the mark away, and says so; so do a read that moves and a send, without a word of their own.
        let mut stream = b.stream().with("last_event_id", b.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        b.read(&loud, 1).await.expect(200);
        assert_eq!(me(&fleet.client(0, &bob), &loud).await["marked_unread"], false);
        assert_eq!(stream.wait_for("preferences.changed", PATIENCE).await.data["data"]["marked_unread"], false);
        a.send(&loud, "k4", "text").await.expect(201);
        for act in ["read", "send"] {
            prefer(&b, &loud, &json!({"marked_unread": true})).await.expect(200);
            assert_eq!(me(&b, &loud).await["marked_unread"], true);
            if act == "read" { b.read(&loud, 2).await.expect(200) } else { b.send(&loud, "k5", "text").await.expect(201) };
            assert_eq!(me(&fleet.client(0, &bob), &loud).await["marked_unread"], false, "{act}");
        }
        // Invited again, bob keeps what was set; who leaves and comes back begins anew.
        assert_eq!(a.invite(&quiet, "bob").await.expect(200).status, 200);
        assert_eq!(me(&b, &quiet).await["muted"], true);
        b.remove(&quiet, "bob").await.expect(204);
        a.invite(&quiet, "bob").await.expect(201);
        assert_eq!(me(&b, &quiet).await["muted"], false);
    }

    async fn what_was_cleared_is_gone_for_one_alone(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("clear", &["bob"]).await;
        for n in 1..=5 {
            a.send(&group, &format!("k{n}"), &format!("secretword {n}")).await.expect(201);
        }
        let (start, rev) = (b.conversations().await.json["events_head"].clone(), b.conversation(&group).await.json["rev"].clone());
        let mut live = b.stream().with("last_event_id", start.as_str().unwrap()).open().await;
        let cleared = prefer(&b, &group, &json!({"cleared_to": 3})).await.expect(200);
        assert_eq!((&cleared.json["me"]["cleared_to"], &cleared.json["me"]["unread"]), (&json!(3), &json!(2)));
        assert_eq!(prefer(&b, &group, &json!({"cleared_to": 2})).await.expect(200).json["me"]["cleared_to"], 3, "never back");
        live.wait_for("preferences.changed", PATIENCE).await;
        let seqs = |page: &Answer| page.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>();
        for (query, expected) in [("", vec![4, 5]), ("after=0", vec![4, 5]), ("before=5", vec![4]), ("around=2", vec![4, 5]), ("since_rev=0", vec![4, 5])] {
            let page = fleet.client(0, &bob).history(&group, query).await.expect(200);
            assert_eq!(seqs(&page), expected, "{query}");
            assert!(query == "since_rev=0" || page.json["has_more_before"] == json!(false), "{query}: {}", page.text);
        }
        for path in ["messages/3", "messages/3/readers"] {
            b.get(&format!("/v1/conversations/{group}/{path}")).await.expect_problem(404, "not_found");
        }
        b.put(&format!("/v1/conversations/{group}/messages/3/reactions/x"), None).await.expect_problem(404, "not_found");
        assert_eq!(b.send_message(&group, &json!({"client_id": "q", "body": "x", "reply_to": 3})).await.expect_problem(422, "invalid_field").json["field"], "reply_to");
        a.send_message(&group, &json!({"client_id": "q", "body": "quoting", "reply_to": 3})).await.expect(201);
        assert_eq!(b.get(&format!("/v1/conversations/{group}/messages/6")).await.json["reply_to"], json!({"seq": 3, "hidden": true}));
        assert!(a.get(&format!("/v1/conversations/{group}/messages/6")).await.json["reply_to"]["preview"].is_string());
        // What happens to a cleared message from now on is not told, neither live nor from the log.
        let path = |seq: u64| format!("/v1/conversations/{group}/messages/{seq}");
        a.patch(&path(2), &json!({"body": "secretword edited"})).await.expect(200);
        a.put(&format!("{}/reactions/%F0%9F%91%8D", path(3)), None).await.expect(200);
        a.put(&format!("{}/reactions/%F0%9F%91%8D", path(4)), None).await.expect(200);
        a.delete(&path(1)).await.expect(200);
        a.send(&group, "last", "done").await.expect(201);
        let mut told = Vec::new();
        loop {
            let event = live.next_event(PATIENCE).await.unwrap();
            let seq = event.data["data"]["message"]["seq"].as_u64().or(event.data["data"]["seq"].as_u64());
            told.push((event.name.clone(), seq));
            if seq == Some(7) {
                break;
            }
        }
        assert_eq!(told, [("message.created".to_owned(), Some(6)), ("reaction.changed".to_owned(), Some(4)), ("message.created".to_owned(), Some(7))]);
        let replayed = fleet.client(0, &bob).stream().with("last_event_id", start.as_str().unwrap()).open().await.until_quiet(QUIET).await;
        assert!(replayed.len() > 3 && replayed.iter().all(|e| !e.data.to_string().contains("secretword edited")), "{replayed:?}");
        assert_eq!(seqs(&b.history(&group, &format!("since_rev={rev}")).await.expect(200)), [6, 4, 7]);
        eventually("the search has all of it", PATIENCE, async || a.get("/v1/search?q=secretword").await.expect(200).items().len() == 4).await;
        assert_eq!(seqs(&b.get("/v1/search?q=secretword").await.expect(200)), [5, 4]);
        // All of it: no last message, nothing unread, whatever the watermark says.
        let all = prefer(&b, &group, &json!({"cleared_to": 9_007_199_254_740_991_u64})).await.expect(200);
        assert_eq!((&all.json["me"]["cleared_to"], &all.json["last_message"], &all.json["me"]["unread"]), (&json!(7), &Value::Null, &json!(0)));
        assert_eq!((b.read(&group, 1).await.expect(200).json["unread"].clone(), b.get("/v1/unread").await.json["total"].clone()), (json!(0), json!(0)));
        assert_eq!(seqs(&a.history(&group, "").await.expect(200)), [1, 2, 3, 4, 5, 6, 7], "for bob alone");
        a.send(&group, "new", "new").await.expect(201);
        let after = b.conversation(&group).await.json;
        assert_eq!((&after["me"]["unread"], &after["last_message"]["seq"]), (&json!(1), &json!(8)));
    }

    async fn all_of_it_is_the_same_after_cooling(cooling: Cooling) {
        let fleet = &cooling.0;
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("cold", &["bob", "cid"]).await;
        for n in 1..=8 {
            a.send_message(&group, &json!({"client_id": format!("k{n}"), "body": "text", "mentions": if n % 2 == 0 { json!(["bob"]) } else { json!([]) }})).await.expect(201);
        }
        b.read(&group, 3).await.expect(200);
        a.delete(&format!("/v1/conversations/{group}/messages/8")).await.expect(200);
        prefer(&b, &group, &json!({"muted": true, "pinned": true, "hidden": true, "marked_unread": true, "cleared_to": 4})).await.expect(200);
        let shown = |answer: &Value| json!({"me": answer["me"], "last": answer["last_message"], "rev": answer["rev"]});
        let warm = b.conversation(&group).await.expect(200).json;
        assert_eq!((&warm["me"]["unread"], &warm["me"]["unread_mentions"], &warm["me"]["hidden"], &warm["me"]["marked_unread"]), (&json!(3), &json!(1), &json!(true), &json!(true)));
        let pages = async || b.history(&group, "after=0").await.expect(200).json;
        let (warm_page, totals) = (pages().await, b.get("/v1/unread").await.json);
        cooling.cold(&group).await;
        assert_eq!(shown(&b.conversation(&group).await.json), shown(&warm));
        assert_eq!(shown(&b.get("/v1/conversations?hidden=true").await.items()[0]), shown(&warm));
        assert_eq!((pages().await, b.get("/v1/unread").await.json), (warm_page, totals));
        b.get(&format!("/v1/conversations/{group}/messages/4")).await.expect_problem(404, "not_found");
        // And after it was loaded again, by somebody's send.
        a.send_message(&group, &json!({"client_id": "k9", "body": "text", "mentions": ["bob", "cid"]})).await.expect(201);
        let again = b.conversation(&group).await.json;
        assert_eq!(values(&again["me"]), json!({"muted": true, "pinned": true, "hidden": false, "marked_unread": true, "cleared_to": 4}));
        assert_eq!((&again["me"]["unread"], &again["me"]["unread_mentions"]), (&json!(4), &json!(2)));
        cooling.cold(&group).await;
        assert_eq!(shown(&b.conversation(&group).await.json), shown(&again));
        prefer(&b, &group, &json!({"muted": false})).await.expect(200);
        assert_eq!(me(&b, &group).await["muted"], false);
        b.read(&group, 9).await.expect(200);
        assert_eq!((me(&b, &group).await["unread_mentions"].clone(), me(&b, &group).await["marked_unread"].clone()), (json!(0), json!(false)));
    }

    async fn events_and_state_agree_whatever_crosses(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let a = fleet.client(0, &ann);
        let group = a.create_group("fold", &["bob"]).await;
        let b = fleet.client(1, &bob);
        let mut stream = b.stream().with("last_event_id", b.conversations().await.json["events_head"].as_str().unwrap()).open().await;
        let at = Arc::new([fleet.client(0, &bob), fleet.client(1, &bob)]);
        let sends = async {
            for n in 0..40 {
                a.send(&group, &format!("k{n}"), "text").await.expect(201);
            }
        };
        let sets = async |gateway: usize| {
            for n in 0..30_u64 {
                let wish = match n % 5 {
                    0 | 2 => json!({"hidden": n % 2 == gateway as u64}),
                    1 => json!({"marked_unread": true, "muted": n % 2 == 0}),
                    3 => json!({"cleared_to": n}),
                    _ => {
                        at[gateway].read(&group, n).await.expect(200);
                        continue;
                    }
                };
                prefer(&at[gateway], &group, &wish).await.expect(200);
            }
        };
        tokio::join!(sends, sets(0), sets(1));
        let state = b.conversation(&group).await.expect(200).json;
        let mut folded = json!({"muted": false, "pinned": false, "hidden": false, "marked_unread": false, "cleared_to": 0});
        let mut read_seq = 0;
        let mut rev = 0;
        while rev < state["rev"].as_u64().unwrap() {
            let event = stream.next_event(PATIENCE).await.unwrap();
            let data = &event.data["data"];
            rev = event.data["rev"].as_u64().unwrap_or(rev);
            match event.name.as_str() {
                "preferences.changed" => folded = data.clone(),
                "message.created" => folded["hidden"] = json!(false),
                "read.advanced" if data["user_id"] == "bob" && data["read_seq"].as_u64() > Some(read_seq) => {
                    read_seq = data["read_seq"].as_u64().unwrap();
                    folded["marked_unread"] = json!(false);
                }
                _ => {}
            }
        }
        assert_eq!(folded, values(&state["me"]));
        assert_eq!(state["me"]["read_seq"], read_seq);
    }
}
