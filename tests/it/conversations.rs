//! Conversations: making, listing, members, watermarks, pages.

use std::collections::HashSet;

use reqwest::Method;
use serde_json::json;

use crate::harness::{Fleet, PATIENCE, User, eventually, on_both};

on_both! {
    async fn a_group_is_made_once_for_its_key(fleet: Fleet) {
        let ann = User::new("ann");
        let make = async |gateway: usize, title: &str| {
            let body = json!({"kind": "group", "title": title, "members": ["bob", "cid", "bob"]});
            fleet.client(gateway, &ann).request(Method::POST, "/v1/conversations", &[("idempotency-key", "g1")], Some(&body)).await
        };
        let (a, b) = tokio::join!(make(0, " Tea "), make(1, " Tea "));
        let mut statuses = [a.status, b.status];
        statuses.sort_unstable();
        assert!(statuses == [200, 201], "{} {}", a.text, b.text);
        assert_eq!(a.json["id"], b.json["id"]);
        assert_eq!((a.json["title"].as_str(), a.json["member_count"].as_u64(), a.json["owner"].as_str()), (Some("Tea"), Some(3), Some("ann")));
        assert_eq!((a.json["head_seq"].as_u64(), a.json["me"]["role"].as_str()), (Some(0), Some("owner")), "making takes no number");
        make(0, "Coffee").await.expect_problem(409, "idempotency_conflict");
        let c = fleet.client(0, &ann);
        for (body, field) in [
            (json!({"kind": "group", "members": ["ann"]}), "members[0]"),
            (json!({"kind": "single", "peer": "ann"}), "peer"),
            (json!({"kind": "single"}), "peer"),
            (json!({"kind": "group", "title": "x".repeat(81), "members": []}), "title"),
            (json!({"kind": "group", "title": "  ", "members": []}), "title"),
            (json!({"kind": "group", "members": ["a/b"]}), "members[0]"),
        ] {
            assert_eq!(c.post("/v1/conversations", &body).await.expect_problem(422, "invalid_field").json["field"], field);
        }
        c.post("/v1/conversations", &json!({"kind": "group", "members": [], "extra": 1})).await.expect_problem(422, "unknown_field");
    }

    async fn the_list_shows_newest_activity_first_and_pages_without_repeats(fleet: Fleet) {
        let ann = User::new("ann");
        let (one, two) = (fleet.client(0, &ann), fleet.client(1, &ann));
        let mut made = Vec::new();
        for n in 0..25 {
            made.push(one.create_group(&format!("group {n}"), &["bob"]).await);
        }
        let list = two.conversations().await.expect(200);
        assert_eq!(list.items().len(), 25, "what was made stands in any list read after it");
        one.send(&made[3], "k", "up").await.expect(201);
        eventually("the one with news comes first", PATIENCE, async || two.conversations().await.items()[0]["id"] == *made[3]).await;
        let mut seen = HashSet::new();
        let mut cursor = String::new();
        loop {
            let page = two.get(&format!("/v1/conversations?limit=4{cursor}")).await.expect(200);
            for item in page.items() {
                assert!(seen.insert(item["id"].as_str().unwrap().to_owned()), "no repeat");
            }
            match page.json["next_cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        assert_eq!(seen.len(), 25);
        assert_eq!(one.get("/v1/conversations?q=GROUP%201").await.items().len(), 11);
        for bad in ["cursor=abc", "cursor=%2B"] {
            one.get(&format!("/v1/conversations?{bad}")).await.expect_problem(400, "invalid_cursor");
        }
    }

    async fn members_come_and_go_as_the_rules_say(fleet: Fleet) {
        let (ann, bob, cid, eve) = (User::new("ann"), User::new("bob"), User::new("cid"), User::new("eve"));
        let (a, b, c, e) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(0, &cid), fleet.client(1, &eve));
        let group = a.create_group("rules", &["bob"]).await;
        e.invite(&group, "eve").await.expect_problem(404, "not_found");
        b.invite(&group, "cid").await.expect(201);
        let again = b.invite(&group, "ann").await.expect(200);
        assert_eq!(again.json["role"], "owner", "inviting changes nothing of who is there");
        let timeline = c.history(&group, "").await.expect(200);
        let join = &timeline.items()[0];
        assert_eq!((join["kind"].as_str(), join["sender"].as_str(), &join["client_id"]), (Some("system"), Some("bob"), &json!(null)));
        assert_eq!(join["data"], json!({"type": "member.joined", "user_id": "cid", "by": "bob"}));
        b.remove(&group, "cid").await.expect_problem(403, "forbidden");
        b.patch(&format!("/v1/conversations/{group}"), &json!({"title": "mine"})).await.expect_problem(403, "forbidden");
        e.patch(&format!("/v1/conversations/{group}"), &json!({"title": ""})).await.expect_problem(404, "not_found");
        assert_eq!(a.patch(&format!("/v1/conversations/{group}"), &json!({"title": "ours"})).await.expect(200).json["title"], "ours");
        let members = c.get(&format!("/v1/conversations/{group}/members?limit=2")).await.expect(200);
        assert_eq!(members.items().iter().map(|m| m["user_id"].as_str().unwrap()).collect::<Vec<_>>(), ["ann", "bob"]);
        let rest = c.get(&format!("/v1/conversations/{group}/members?cursor={}", members.json["next_cursor"].as_str().unwrap())).await.expect(200);
        assert_eq!(rest.items()[0]["user_id"], "cid");

        let mut stream = c.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        a.remove(&group, "cid").await.expect(204);
        c.send(&group, "k", "still here?").await.expect_problem(404, "not_found");
        c.history(&group, "").await.expect_problem(404, "not_found");
        c.read(&group, 1).await.expect_problem(404, "not_found");
        a.send(&group, "k", "he is gone").await.expect(201);
        // What was said before may still be on its way to her log when the stream opens.
        let event = stream.wait_for("member.removed", PATIENCE).await;
        let head = a.conversation(&group).await.json["head_seq"].as_u64().unwrap();
        assert_eq!(event.data["data"], json!({"user_id": "cid", "by": "ann", "seq": head - 1}));

        let (first, second) = (fleet.client(0, &ann), fleet.client(1, &ann));
        let (x, y) = tokio::join!(first.remove(&group, "ann"), second.remove(&group, "ann"));
        let mut statuses = [x.status, y.status];
        statuses.sort_unstable();
        assert_eq!(statuses, [204, 404], "leaving twice at once is leaving once");
        let seen = b.conversation(&group).await.expect(200);
        assert_eq!((seen.json["owner"].as_str(), seen.json["me"]["role"].as_str()), (Some("bob"), Some("owner")));
        let kinds: Vec<String> = b.whole_history(&group).await.iter().filter_map(|m| m["data"]["type"].as_str().map(str::to_owned)).collect();
        assert_eq!(kinds, ["member.joined", "conversation.renamed", "member.removed", "member.left", "owner.changed"]);
        // Nothing after the removal reached the one who was removed, though others went on.
        let sentinel = c.send_to_peer("dan", "k", "hi").await.expect(201).json["conversation_id"].as_str().unwrap().to_owned();
        loop {
            let event = stream.next_event(PATIENCE).await.unwrap();
            assert_eq!(event.data["conversation_id"], *sentinel, "{event:?}");
            if event.name == "message.created" {
                break;
            }
        }
        b.remove(&group, "bob").await.expect(204);
        b.conversation(&group).await.expect_problem(410, "dissolved");
        assert!(b.conversations().await.expect(200).items().iter().all(|i| i["id"] != *group));
    }

    async fn watermarks_only_move_forward_and_unread_is_derived(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("read", &["bob"]).await;
        for n in 0..3 {
            a.send(&group, &format!("a{n}"), "hi").await.expect(201);
        }
        for n in 0..2 {
            b.send(&group, &format!("b{n}"), "hi").await.expect(201);
        }
        assert_eq!(a.conversation(&group).await.json["me"]["unread"], 2);
        assert_eq!(b.conversation(&group).await.json["me"]["unread"], 0, "one's own send moves one's own watermark");
        assert_eq!(a.get("/v1/unread").await.expect(200).json["total"], 2);
        eventually("the list says the same", PATIENCE, async || fleet.client(1, &ann).conversations().await.items()[0]["me"]["unread"] == 2).await;
        let mut stream = a.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let read = a.read(&group, 4).await.expect(200);
        assert_eq!((read.json["read_seq"].as_u64(), read.json["unread"].as_u64()), (Some(4), Some(1)));
        let event = stream.wait_for("read.advanced", PATIENCE).await;
        assert_eq!((event.data["data"]["user_id"].as_str(), event.data["data"]["read_seq"].as_u64()), (Some("ann"), Some(4)));
        let older = fleet.client(1, &ann).read(&group, 2).await.expect(200);
        assert_eq!((older.json["read_seq"].as_u64(), &older.json["read_at"]), (Some(4), &read.json["read_at"]), "an old device changes nothing");
        let path = format!("/v1/conversations/{group}/read");
        let beyond = a.try_request(Method::POST, &path, &[], Some(br#"{"seq":9007199254740993}"#.to_vec())).await.unwrap().expect(200);
        assert_eq!((beyond.json["read_seq"].as_u64(), beyond.json["unread"].as_u64()), (Some(5), Some(0)));
        for bad in [json!({"seq": -1}), json!({"seq": "5"}), json!({}), json!({"seq": 1.5})] {
            a.post(&path, &bad).await.expect_problem(422, "invalid_field");
            fleet.client(1, &User::new("eve")).post(&path, &bad).await.expect_problem(404, "not_found");
        }
        b.invite(&group, "cid").await.expect(201);
        assert_eq!(a.conversation(&group).await.json["me"]["unread"], 0, "the timeline does not count");
        let c = fleet.client(0, &User::new("cid")).conversation(&group).await.expect(200);
        assert_eq!((c.json["me"]["read_seq"].as_u64(), c.json["me"]["unread"].as_u64()), (Some(6), Some(0)), "who joins starts at the head");
    }

    async fn pages_fit_together_whichever_way_one_reads(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann).kept_alive(), fleet.client(1, &bob).kept_alive());
        let group = a.create_group("pages", &["bob"]).await;
        a.history(&group, "").await.expect(200);
        for n in 1..=60 {
            a.send(&group, &format!("k{n}"), &n.to_string()).await.expect(201);
        }
        let seqs = |answer: &crate::harness::Answer| answer.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>();
        let flags = |answer: &crate::harness::Answer| (answer.json["has_more_before"] == true, answer.json["has_more_after"] == true);
        let cases: [(&str, std::ops::RangeInclusive<u64>, (bool, bool)); 8] = [
            ("limit=10", 51..=60, (true, false)),
            ("before=11&limit=10", 1..=10, (false, true)),
            ("before=12&limit=10", 2..=11, (true, true)),
            ("after=50&limit=10", 51..=60, (true, false)),
            ("after=0&limit=10", 1..=10, (false, true)),
            ("around=30&limit=10", 25..=34, (true, true)),
            ("around=1&limit=4", 1..=4, (false, true)),
            ("around=60&limit=4", 58..=60, (true, false)),
        ];
        for (query, range, more) in cases {
            let page = b.history(&group, query).await.expect(200);
            assert_eq!((seqs(&page), flags(&page)), (range.collect(), more), "{query}");
        }
        assert!(b.history(&group, "after=60").await.expect(200).items().is_empty());
        let mut since = 0;
        let mut changed = Vec::new();
        loop {
            let page = b.history(&group, &format!("since_rev={since}&limit=7")).await.expect(200);
            changed.extend(seqs(&page));
            since = page.json["next_rev"].as_u64().unwrap();
            if page.json["has_more"] == false {
                break;
            }
        }
        assert_eq!(changed, (1..=60).collect::<Vec<_>>());
        assert!(b.history(&group, &format!("since_rev={since}")).await.expect(200).items().is_empty());
        for bad in ["limit=0", "limit=-1", "limit=201", "limit=2147483647", "limit=1e3", "limit=abc", "before=x", "after=-1", "before=1&after=2", "since_rev=1&before=2", "colour=red"] {
            let answer = b.history(&group, bad).await.expect_problem(400, "invalid_parameter");
            assert!(!answer.json["detail"].as_str().unwrap().to_lowercase().contains("select"), "{bad}");
        }
        b.get(&format!("/v1/conversations/{group}/messages/61")).await.expect_problem(404, "not_found");
        b.get(&format!("/v1/conversations/{group}/messages/0")).await.expect_problem(404, "not_found");
    }

    async fn who_joins_late_pages_from_where_his_sight_begins(fleet: Fleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann).kept_alive(), fleet.client(1, &bob).kept_alive());
        let body = json!({"kind": "group", "members": ["cid"], "history": "from_join"});
        let made = a.post("/v1/conversations", &body).await.expect(201);
        let group = made.json["id"].as_str().unwrap().to_owned();
        for n in 1..=60 {
            a.send(&group, &format!("k{n}"), "before").await.expect(201);
        }
        a.invite(&group, "bob").await.expect(201);
        for n in 62..=64 {
            a.send(&group, &format!("k{n}"), "after").await.expect(201);
        }
        for query in ["", "after=0", "after=20&limit=10", "around=1&limit=10", "around=5&limit=10", "since_rev=0&limit=200"] {
            let page = b.history(&group, query).await.expect(200);
            assert_eq!(page.items().iter().map(|m| m["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [61, 62, 63, 64], "{query}");
        }
        let first = b.history(&group, "after=20&limit=2").await.expect(200);
        assert_eq!((first.items().len(), first.json["has_more_after"].as_bool()), (2, Some(true)));
        assert!(b.history(&group, "before=61").await.expect(200).items().is_empty());
        b.get(&format!("/v1/conversations/{group}/messages/60")).await.expect_problem(404, "not_found");
        assert_eq!(fleet.client(0, &User::new("cid")).history(&group, "after=0&limit=5").await.expect(200).items().len(), 5);
    }
}
