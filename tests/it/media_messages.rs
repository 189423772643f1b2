//! Pictures in messages: whose they are, who sees them and from when to when.

use serde_json::{Value, json};

use crate::harness::client::pair;
use crate::harness::pictures::{PictureFleet, picture};
use crate::harness::{Client, Fleet, PATIENCE, RedisKind, User, eventually, on_both};

fn images(key: &str, media: &[&str]) -> Value {
    json!({"client_id": key, "kind": "image", "media": media})
}

async fn count(fleet: &Fleet, table: &str) -> i64 {
    let mut connection = fleet.database().connect().await;
    let statement = match table {
        "claims" => "SELECT count(*) FROM media_claims",
        _ => "SELECT count(*) FROM message_media",
    };
    let (count,): (i64,) = sqlx::query_as(statement).fetch_one(&mut connection).await.unwrap();
    count
}

/// Waits until the archive's rows stand in place of all claims.
async fn archived(fleet: &Fleet, references: i64) {
    eventually("references replace claims", PATIENCE, async || {
        (count(fleet, "claims").await, count(fleet, "references").await) == (0, references)
    })
    .await;
}

async fn patch(client: &Client, conversation: &str, seq: u64, body: Value) -> crate::harness::Answer {
    client.patch(&format!("/v1/conversations/{conversation}/messages/{seq}"), &body).await
}

on_both! {
    async fn a_picture_is_seen_the_moment_its_message_is_heard(fleet: PictureFleet) {
        let (ann, bob, eve) = (User::new("ann"), User::new("bob"), User::new("eve"));
        let (a, b, e) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &eve));
        let mut stream = b.stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        let one = a.upload_picture().await;
        let bytes = picture("image/jpeg", 40, 30);
        let two = a.upload("image/jpeg", bytes.clone()).await.expect(201).json["id"].as_str().unwrap().to_owned();
        assert_eq!(b.sees(&one).await, 404);
        // The message that also makes the conversation.
        let id = pair("ann", "bob");
        let mut message = images("k", &[&two, &one]);
        message["body"] = json!(format!("look: ![img:{one}] and ![img:{two}] and ![img:{one}]"));
        message["peer"] = json!("bob");
        let sent = a.send_message(&id, &message).await.expect(201).json;
        let items = json!([
            {"id": two, "position": 0, "mime_type": "image/jpeg", "size": bytes.len(), "width": 40, "height": 30},
            {"id": one, "position": 1, "mime_type": "image/png", "size": picture("image/png", 12, 8).len(), "width": 12, "height": 8},
        ]);
        assert_eq!((&sent["media"], &sent["body"], &sent["kind"]), (&items, &message["body"], &json!("image")));
        let heard = stream.next_message(PATIENCE).await;
        let (status, _, seen) = b.look(&two, &[]).await;
        assert_eq!((status, seen), (200, bytes));
        assert_eq!(b.sees(&one).await, 200);
        assert_eq!(heard["media"], items);
        assert_eq!((e.sees(&one).await, e.sees(&two).await), (404, 404));

        archived(&fleet, 2).await;
        assert_eq!((b.sees(&one).await, e.sees(&one).await), (200, 404));
        assert_eq!(b.history(&id, "").await.expect(200).items()[0]["media"], items);
        // The same again, anywhere; other pictures or another order are something else.
        let again = fleet.client(1, &ann).send_message(&id, &message).await.expect(200);
        assert_eq!((again.json["media"].clone(), again.header("idempotency-replayed")), (items, Some("true")));
        message["media"] = json!([one, two]);
        a.send_message(&id, &message).await.expect_problem(409, "idempotency_conflict");
    }

    async fn claims_serve_until_the_archive_has_its_rows(kind: RedisKind) {
        let mut fleet = PictureFleet::with_workers(kind, 0, &[]).await;
        let (ann, bob, cid) = (User::new("ann"), User::new("bob"), User::new("cid"));
        let (a, b, c) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &cid));
        let made = json!({"kind": "group", "title": "from join", "members": ["bob"], "history": "from_join"});
        let group = a.post("/v1/conversations", &made).await.expect(201).json["id"].as_str().unwrap().to_owned();
        let (one, two, three) = (a.upload_picture().await, a.upload_picture().await, a.upload_picture().await);
        for (key, media) in [("one", &one), ("two", &two)] {
            a.send_message(&group, &images(key, &[media])).await.expect(201);
        }
        // Behind more messages than one read of the window gives.
        let many = a.clone().kept_alive();
        for n in 0..210 {
            many.send(&group, &format!("k{n}"), "more").await.expect(201);
        }
        assert_eq!((b.sees(&one).await, b.sees(&two).await, c.sees(&one).await), (200, 200, 404));
        a.invite(&group, "cid").await.expect(201);
        assert_eq!(c.sees(&one).await, 404, "said before the join");
        patch(&a, &group, 1, json!({"media": [three]})).await.expect(200);
        assert_eq!((b.sees(&one).await, b.sees(&three).await, c.sees(&three).await), (404, 200, 404));
        a.delete(&format!("/v1/conversations/{group}/messages/2")).await.expect(200);
        assert_eq!((b.sees(&two).await, count(&fleet, "references").await), (404, 0));
        fleet.fleet().add_worker().await;
        eventually("the one that is shown has its row", PATIENCE, async || count(&fleet, "references").await == 1).await;
        assert_eq!((b.sees(&one).await, b.sees(&two).await, b.sees(&three).await, c.sees(&three).await), (404, 404, 200, 404));
    }

    async fn what_cannot_be_shown_is_named_and_nothing_is_kept(fleet: PictureFleet) {
        let (ann, bob, cid) = (User::new("ann"), User::new("bob"), User::new("cid"));
        let (a, b, c) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &cid));
        let group = a.create_group("pictures", &["bob", "cid"]).await;
        let (own, other) = (a.upload_picture().await, b.upload_picture().await);
        let nobodys = "01940b5e-7d3f-7000-8000-00000000000a";
        let place = |id: &str| json!(format!("![img:{id}]"));
        let many: Vec<String> = (0..10).map(|n| format!("01940b5e-7d3f-7000-8000-00000000000{n}")).collect();
        let cases = [
            (json!({"kind": "image"}), "media"),
            (json!({"kind": "image", "media": []}), "media"),
            (json!({"kind": "image", "media": null}), "media"),
            (json!({"kind": "image", "media": many}), "media"),
            (json!({"kind": "image", "media": own}), "media"),
            (json!({"kind": "image", "media": [own, 5]}), "media[1]"),
            (json!({"kind": "image", "media": [own, own]}), "media[1]"),
            (json!({"kind": "image", "media": [own, nobodys]}), "media[1]"),
            (json!({"kind": "image", "media": [other, own]}), "media[0]"),
            (json!({"kind": "image", "media": [own.to_uppercase()]}), "media[0]"),
            (json!({"kind": "image", "media": [own, {"id": own}]}), "media[1]"),
            (json!({"kind": "image", "media": [own], "body": place(&other)}), "body"),
            (json!({"kind": "image", "media": [own], "body": "![img:]"}), "body"),
            (json!({"kind": "image", "media": [own], "body": "中".repeat(4_001)}), "body"),
            (json!({"media": [own], "body": "words"}), "media"),
            (json!({"kind": "text", "media": [own], "body": "words"}), "media"),
        ];
        for (n, (mut message, field)) in cases.into_iter().enumerate() {
            message["client_id"] = json!(format!("k{n}"));
            let answer = a.send_message(&group, &message).await.expect_problem(422, "invalid_field");
            assert_eq!(answer.json["field"], field, "{message}");
        }
        assert_eq!((count(&fleet, "claims").await, count(&fleet, "references").await), (0, 0));
        // Who is no member learns nothing of it.
        let stranger = fleet.client(0, &User::new("eve"));
        stranger.send_message(&group, &images("k", &[nobodys])).await.expect_problem(404, "not_found");
        // Words are words.
        let words = json!({"client_id": "words", "body": place(&own)});
        assert_eq!(a.send_message(&group, &words).await.expect(201).json["media"], json!([]));
        assert_eq!(b.sees(&own).await, 404);
        // Somebody else's attempt takes nothing from its owner, and a picture may be shown twice.
        let mine = a.send_message(&group, &images("one", &[&own])).await.expect(201).seq();
        assert_eq!(c.sees(&own).await, 200);
        let answer = c.send_message(&group, &images("theirs", &[&own])).await.expect_problem(422, "invalid_field");
        assert_eq!(answer.json["field"], "media[0]");
        let twice = a.send_message(&group, &images("two", &[&own])).await.expect(201).seq();
        archived(&fleet, 2).await;
        for seq in [mine, twice] {
            let seen = b.get(&format!("/v1/conversations/{group}/messages/{seq}")).await.expect(200);
            assert_eq!(seen.json["media"][0]["id"], own);
        }
        // It is seen as long as one of them is.
        a.delete(&format!("/v1/conversations/{group}/messages/{mine}")).await;
        archived(&fleet, 1).await;
        assert_eq!(b.sees(&own).await, 200);
        a.delete(&format!("/v1/conversations/{group}/messages/{twice}")).await;
        assert_eq!((a.sees(&own).await, b.sees(&own).await, c.sees(&own).await), (200, 404, 404));
        archived(&fleet, 0).await;
        assert_eq!((a.sees(&own).await, b.sees(&own).await), (200, 404));
    }

    async fn an_edit_changes_what_is_seen_by_the_rules_of_a_send(fleet: PictureFleet) {
        let (ann, bob) = (User::new("ann"), User::new("bob"));
        let (a, b) = (fleet.client(0, &ann), fleet.client(1, &bob));
        let group = a.create_group("pictures", &["bob"]).await;
        let (old, new, other) = (a.upload_picture().await, a.upload_picture().await, b.upload_picture().await);
        let mut message = images("k", &[&old]);
        message["body"] = json!(format!("![img:{old}]"));
        let sent = a.send_message(&group, &message).await.expect(201).json;
        let seq = sent["seq"].as_u64().unwrap();
        let cases = [
            (json!({"media": []}), "media"),
            (json!({"media": [old, other]}), "media[1]"),
            (json!({"media": [old, old]}), "media[1]"),
            (json!({"media": [new]}), "body"),
            (json!({"body": format!("![img:{new}]")}), "body"),
            (json!({"body": "中".repeat(4_001)}), "body"),
        ];
        for (change, field) in cases {
            let answer = patch(&a, &group, seq, change.clone()).await.expect_problem(422, "invalid_field");
            assert_eq!(answer.json["field"], field, "{change}");
        }
        patch(&b, &group, seq, json!({"media": [other], "body": ""})).await.expect_problem(403, "forbidden");
        let same = b.get(&format!("/v1/conversations/{group}/messages/{seq}")).await.expect(200).json;
        assert_eq!((&same["rev"], &same["media"], &same["body"]), (&sent["rev"], &sent["media"], &sent["body"]));
        assert_eq!((b.sees(&old).await, b.sees(&new).await), (200, 404));
        // Before and after the archive has it: added, put in another order, replaced.
        let both = patch(&a, &group, seq, json!({"media": [new, old]})).await.expect(200).json;
        assert_eq!((&both["media"][0]["id"], &both["media"][1]["id"]), (&json!(new), &json!(old)));
        assert_eq!((b.sees(&old).await, b.sees(&new).await), (200, 200));
        archived(&fleet, 2).await;
        patch(&a, &group, seq, json!({"media": [new], "body": "later"})).await.expect(200);
        assert_eq!((b.sees(&old).await, b.sees(&new).await), (404, 200));
        archived(&fleet, 1).await;
        assert_eq!((a.sees(&old).await, b.sees(&old).await, b.sees(&new).await), (200, 404, 200));
        // Words alone leave the pictures; no words are words enough.
        assert_eq!(patch(&a, &group, seq, json!({"body": ""})).await.expect(200).json["media"][0]["id"], new);
        // A text takes none.
        let text = a.send(&group, "t", "words").await.expect(201).seq();
        let answer = patch(&a, &group, text, json!({"media": [old]})).await.expect_problem(422, "invalid_field");
        assert_eq!(answer.json["field"], "media");
    }

    async fn who_may_not_see_the_message_does_not_see_the_picture(fleet: PictureFleet) {
        let (ann, bob, cid) = (User::new("ann"), User::new("bob"), User::new("cid"));
        let (a, b, c) = (fleet.client(0, &ann), fleet.client(1, &bob), fleet.client(1, &cid));
        let made = json!({"kind": "group", "title": "from join", "members": ["bob"], "history": "from_join"});
        let group = a.post("/v1/conversations", &made).await.expect(201).json["id"].as_str().unwrap().to_owned();
        let (before, after) = (a.upload_picture().await, a.upload_picture().await);
        a.send_message(&group, &images("before", &[&before])).await.expect(201);
        a.invite(&group, "cid").await.expect(201);
        a.send_message(&group, &images("after", &[&after])).await.expect(201);
        assert_eq!((b.sees(&before).await, b.sees(&after).await), (200, 200));
        assert_eq!((c.sees(&before).await, c.sees(&after).await), (404, 200));
        archived(&fleet, 2).await;
        assert_eq!((c.sees(&before).await, c.sees(&after).await), (404, 200));
        a.remove(&group, "bob").await.expect(204);
        assert_eq!((b.sees(&before).await, b.sees(&after).await), (404, 404));
        c.remove(&group, "cid").await.expect(204);
        assert_eq!(c.sees(&after).await, 404);
    }
}
