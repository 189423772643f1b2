//! Gateways whose clocks disagree by minutes: numbers decide the order, everywhere.

use crate::crowd::seqs_up_to;
use crate::harness::{Fleet, PATIENCE, RedisKind, User};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clocks_that_disagree_change_no_order() {
    let mut fleet = Fleet::start(RedisKind::Single, 1, 1).await;
    fleet.add_gateway(&["--clock-offset-ms", "-120000"]).await;
    fleet.add_gateway(&["--clock-offset-ms", "120000"]).await;
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let other = fleet.client(2, &bob).create_group("other", &["ann"]).await;
    fleet.client(2, &bob).send(&other, "k", "from the future").await.expect(201);
    let group = fleet.client(0, &ann).create_group("talk", &["bob"]).await;
    let mut streams = Vec::new();
    for gateway in 0..3 {
        let mut stream = fleet.client(gateway, &bob).stream().open().await;
        stream.wait_for("hello", PATIENCE).await;
        streams.push(stream);
    }
    for n in 0..30 {
        let key = uuid::Uuid::now_v7().to_string();
        let sent = fleet.client(n, &ann).send(&group, &key, &format!("m{n}")).await.expect(201);
        assert_eq!(sent.seq(), n as u64 + 1);
        assert_eq!(fleet.client(n + 1, &ann).send(&group, &key, &format!("m{n}")).await.expect(200).json["id"], sent.json["id"]);
    }
    for stream in &mut streams {
        assert_eq!(seqs_up_to(stream, 30).await, (1..=30).collect::<Vec<_>>());
    }
    for gateway in 0..3 {
        let history = fleet.client(gateway, &bob).whole_history(&group).await;
        assert_eq!(
            history.iter().map(|m| m["body"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
            (0..30).map(|n| format!("m{n}")).collect::<Vec<_>>()
        );
        // The last word was said at the slow gateway, or the fast one: either way it is the newest.
        let list = fleet.client(gateway, &bob).conversations().await.expect(200);
        assert_eq!(list.items()[0]["id"], *group, "the list does not sink");
    }
    let at = fleet.client(1, &ann).read(&group, 30).await.expect(200);
    assert_eq!(at.json["unread"], 0);
}
