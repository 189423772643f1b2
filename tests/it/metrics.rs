//! What `/metrics` shows: every row of the table, at zero before anything happened, and no label that a client could invent.

use std::collections::BTreeSet;

use reqwest::Method;
use seqline::metrics::{Kind, Values, rows};

use crate::harness::client::pair;
use crate::harness::{Client, EventStream, PATIENCE, PrivateRedis, Process, RedisKind, StreamRequest, TestDatabase, User};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_stand_at_zero_first_and_labels_stay_bounded() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let mut process = Process::start(&["serve", "--with-worker"], &redis.url(), database.url(), &[("SEQLINE_SHARDS", "2")]);
    process.wait_ready().await;
    let text = process.metrics().await;
    for row in rows() {
        // What has open labels appears with its first value.
        let wanted: Vec<String> = match (row.values, row.kind) {
            (Values::Open(_), _) => continue,
            (Values::None, Kind::Histogram(_)) => vec![format!("{}_count ", row.name)],
            (Values::None, _) => vec![format!("{} ", row.name)],
            (Values::Closed(label, values), kind) => {
                let name = if matches!(kind, Kind::Histogram(_)) { format!("{}_count", row.name) } else { row.name.to_owned() };
                values.iter().map(|value| format!("{name}{{{label}=\"{value}\"}} ")).collect()
            }
        };
        for line in wanted {
            assert!(text.lines().any(|l| l.starts_with(&line)), "{line} is not in\n{text}");
        }
        assert!(text.contains(&format!("# HELP {} ", row.name)), "{} has no help", row.name);
    }
    assert_eq!(process.metric("seqline_sends_total{outcome=\"new\"}").await, Some(0.0));
    assert_eq!(process.metric("seqline_seq_conflicts_total").await, Some(0.0));

    let ann = Client::new(process.url(), &User::new("ann"));
    ann.send_to_peer("bob", "k1", "hello").await.expect(201);
    ann.send_to_peer("bob", "k1", "hello").await.expect(200);
    ann.send_to_peer("bob", "k1", "other").await.expect(409);
    for outcome in ["new", "replayed", "conflict"] {
        assert_eq!(process.metric(&format!("seqline_sends_total{{outcome=\"{outcome}\"}}")).await, Some(1.0), "{outcome}");
    }
    let id = pair("ann", "bob");
    for path in ["/invented-1", "/invented-2", &format!("/v1/conversations/{id}/invented-3")] {
        ann.get(path).await.expect(404);
    }
    ann.get(&format!("/v1/conversations/{id}")).await.expect(200);
    let text = process.metrics().await;
    assert!(text.contains("seqline_http_requests_total{method=\"GET\",route=\"/v1/conversations/{id}\",status=\"200\"} 1"), "{text}");
    assert!(text.contains("seqline_http_requests_total{method=\"any\",route=\"unmatched\",status=\"404\"} 3"), "{text}");
    for leak in ["invented", &id, "ann", "bob", "hello"] {
        assert!(!text.lines().filter(|l| !l.starts_with('#')).any(|l| l.contains(leak)), "{leak}");
    }

    // The log names routes and request ids, and neither tokens nor what was said.
    let log = process.log();
    let lines: Vec<serde_json::Value> = log.lines().filter_map(|l| serde_json::from_str(l).ok()).collect();
    let access: Vec<_> = lines.iter().filter(|line| line["target"] == "seqline::access").collect();
    assert!(access.len() >= 7, "{log}");
    assert!(
        access.iter().all(|line| line["request.id"].is_string() && line["request.route"].is_string() && line["response.status"].is_u64())
    );
    for leak in ["hello", "eyJ", "invented"] {
        assert!(!log.contains(leak), "{leak} in\n{log}");
    }
    process.stop().await;
    assert_eq!(process.ended().and_then(|status| status.code()), Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_paths_and_ids_make_no_series_of_their_own() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let mut process = Process::start(&["serve", "--with-worker"], &redis.url(), database.url(), &[]);
    process.wait_ready().await;
    let ann = Client::new(process.url(), &User::new("ann")).kept_alive();
    let ask = async |n: usize| {
        ann.get(&format!("/wp-admin/{n}")).await.expect(404);
        ann.request(Method::from_bytes(format!("VERB{n}").as_bytes()).unwrap(), &format!("/v1/{n}/messages"), &[], None).await;
        ann.get(&format!("/v1/conversations/{n}x")).await;
        ann.get(&format!("/v1/conversations/{}", pair("ann", &format!("user-{n}")))).await.expect(404);
    };
    // Each kind of answer once, so that what it counts is there.
    ask(0).await;
    let series = |text: &str| -> BTreeSet<String> {
        // Scripts and shards are counted when they are used first, which the gateway and the worker do by themselves.
        let rows = text.lines().filter(|line| !["#", "seqline_script_", "seqline_outbox_"].iter().any(|begin| line.starts_with(begin)));
        rows.filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned())).collect()
    };
    let before = series(&process.metrics().await);
    for n in 1..=500 {
        ask(n).await;
    }
    let after = series(&process.metrics().await);
    let new: Vec<&String> = after.difference(&before).collect();
    assert!(new.len() < 20, "{new:#?}");
    process.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_that_tell_all_hold_no_secret_and_nothing_that_was_said() {
    let (redis, database) = (PrivateRedis::start(RedisKind::Single).await, TestDatabase::migrated().await);
    let loud = [("SEQLINE_LOG", "trace")];
    let mut processes: Vec<Process> =
        ["serve", "serve", "work"].iter().map(|word| Process::start(&[word], &redis.url(), database.url(), &loud)).collect();
    for process in &mut processes {
        process.wait_ready().await;
    }
    let (ann, bob) = (User::new("ann"), User::new("bob"));
    let at: Vec<Client> = processes[..2].iter().map(|process| Client::new(process.url(), &ann)).collect();
    let made = at[0].post("/v1/events/ticket", &serde_json::json!({})).await.expect(200);
    let ticket = made.json["ticket"].as_str().unwrap().to_owned();
    let listen = async |request: StreamRequest| -> EventStream {
        let mut stream = request.open().await;
        stream.wait_for("hello", PATIENCE).await;
        stream
    };
    let mut streams = vec![
        listen(StreamRequest::new(&processes[1].url(), &ann).without_token().with("ticket", &ticket)).await,
        listen(StreamRequest::new(&processes[0].url(), &bob)).await,
    ];
    for one in &at {
        one.get(&format!("/v1/conversations?token={}", ann.token)).await;
        let wrong = one.stream().without_token().with("ticket", &format!("{ticket}0")).try_open().await.map(|_| ()).unwrap_err();
        wrong.expect_problem(401, "unauthenticated");
        one.send_to_peer("bob", "a-key-of-mine", "a-very-private-word").await;
    }
    for stream in &mut streams {
        assert_eq!(stream.next_message(PATIENCE).await["body"], "a-very-private-word");
    }
    for process in &mut processes {
        process.stop().await;
        let log = process.log();
        assert!(log.lines().count() > 20 && log.contains("DEBUG"), "it is not loud: {log}");
        let secret = ticket.split_once('.').unwrap().1;
        for leak in [ann.token.as_str(), bob.token.as_str(), &ticket, secret, "a-very-private-word"] {
            let line = log.lines().find(|line| line.contains(leak));
            assert!(line.is_none(), "{leak} in {line:?}");
        }
    }
}
