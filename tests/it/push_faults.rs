//! Web Push, when something is wrong: subscriptions that have ended, services that are busy, slow, away or hostile, workers that die.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use seqline::push::deliver::Terms;
use seqline::push::{BrowserKeys, Door, Endpoint, Lookup, PushFault, Urgency, VapidKey};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::push_service::{Browser, FLAGS, PushService};
use crate::harness::{Fleet, PATIENCE, ProcessFleet, RedisKind, Reply, User, eventually};
use crate::push::{count, nothing_waits};

/// The same for processes.
const ENVS: [(&str, &str); 5] = [
    ("SEQLINE_VAPID_PRIVATE_KEY", FLAGS[1]),
    ("SEQLINE_VAPID_SUBJECT", FLAGS[3]),
    ("SEQLINE_PUSH_ALLOW_LOOPBACK", "true"),
    ("SEQLINE_PUSH_DELAY_MS", "0"),
    ("SEQLINE_PUSH_INTERVAL_MS", "0"),
];

fn flags<'a>(more: &[&'a str]) -> Vec<&'a str> {
    FLAGS.iter().copied().chain(more.iter().copied()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_that_has_ended_goes_and_the_others_are_served() {
    let service = PushService::start(|pushed| Reply::Status(if pushed.path.ends_with("gone") { 410 } else { 201 })).await;
    let fleet = Fleet::start_with(RedisKind::Single, 2, 1, &FLAGS).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(1, &User::new("bob")));
    let browsers = ["one", "gone", "two", "three"].map(|name| Browser::new(&service, name));
    for browser in &browsers {
        browser.register(&bob, false).await.expect(201);
    }
    ann.send_to_peer("bob", "k1", "one").await.expect(201);
    nothing_waits(fleet.database(), 1).await;
    for browser in &browsers {
        assert_eq!(service.taken(browser).len(), usize::from(browser.name != "gone"), "{}", browser.name);
    }
    assert_eq!(service.pushed().len(), 4);
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 3);
    service.behave(|pushed| Reply::Status(if pushed.path.ends_with("two") { 404 } else { 201 }));
    ann.send_to_peer("bob", "k2", "two").await.expect(201);
    eventually("the second has ended, too", PATIENCE, async || count(fleet.database(), "push_subscriptions").await == 2).await;
    nothing_waits(fleet.database(), 1).await;
    assert_eq!(service.pushed().len(), 7);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_asks_to_wait_is_left_alone() {
    let service = PushService::start(|_| Reply::Later(429, 2)).await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &FLAGS).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, false).await.expect(201);
    ann.send_to_peer("bob", "k1", "one").await.expect(201);
    eventually("it was tried", PATIENCE, async || service.pushed().len() == 1).await;
    let asked = Instant::now();
    service.behave(|_| Reply::Status(201));
    service.has_taken(&browser, 1, PATIENCE).await;
    // Not to the millisecond: the first call was seen a moment after it was answered.
    assert!(asked.elapsed() > Duration::from_millis(1_800), "{:?}", asked.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_is_tried_again_and_what_is_refused_is_not() {
    let mut tries = 0;
    let service = PushService::start(move |pushed| {
        if pushed.path.ends_with("refused") {
            return Reply::Status(403);
        }
        if pushed.path.ends_with("led-elsewhere") {
            return Reply::Status(307);
        }
        tries += 1;
        match tries {
            1 => Reply::Status(500),
            2 => Reply::Silence,
            3 => Reply::HangUp,
            4 => Reply::Status(503),
            _ => Reply::Status(202),
        }
    })
    .await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &flags(&["--push-timeout-ms", "400"])).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("bob")));
    let browsers = ["in-the-end", "refused", "led-elsewhere"].map(|name| Browser::new(&service, name));
    for browser in &browsers {
        browser.register(&bob, false).await.expect(201);
    }
    ann.send_to_peer("bob", "k1", "one").await.expect(201);
    service.has_taken(&browsers[0], 1, PATIENCE).await;
    nothing_waits(fleet.database(), 1).await;
    let calls = |name: &str| service.pushed().iter().filter(|one| one.path.ends_with(name)).count();
    assert_eq!((calls("in-the-end"), calls("refused"), calls("led-elsewhere"), calls("elsewhere")), (5, 1, 1, 1));
    assert_eq!(count(fleet.database(), "push_subscriptions").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_too_old_is_given_up() {
    let service = PushService::start(|_| Reply::Status(500)).await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &flags(&["--push-ttl", "5"])).await;
    let (ann, bob) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("bob")));
    let browser = Browser::new(&service, "bob");
    browser.register(&bob, false).await.expect(201);
    ann.send_to_peer("bob", "k1", "one").await.expect(201);
    eventually("it was tried", PATIENCE, async || !service.pushed().is_empty()).await;
    nothing_waits(fleet.database(), 1).await;
    assert_eq!(service.taken(&browser).len(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_silent_holds_up_no_other() {
    let silent = PushService::start(|_| Reply::Silence).await;
    let willing = PushService::willing().await;
    let fleet = Fleet::start_with(RedisKind::Single, 1, 1, &flags(&["--push-calls-max", "4", "--push-timeout-ms", "6000"])).await;
    let ann = fleet.client(0, &User::new("ann"));
    for name in ["bob", "cid"] {
        for n in 0..20 {
            Browser::new(&silent, &format!("{name}{n}")).register(&fleet.client(0, &User::new(name)), false).await.expect(201);
        }
    }
    let browser = Browser::new(&willing, "dan");
    browser.register(&fleet.client(0, &User::new("dan")), true).await.expect(201);
    let group = ann.create_group("Lake", &["bob", "cid"]).await;
    ann.send(&group, "k1", "one").await.expect(201);
    eventually("the silent one was called", PATIENCE, async || silent.pushed().len() >= 2).await;
    let begun = Instant::now();
    for n in 0..3 {
        ann.send_to_peer("dan", &format!("k{n}"), "hello").await.expect(201);
        let said = willing.has_taken(&browser, n + 1, PATIENCE).await;
        assert_eq!(said[n]["unread"], json!(n + 1));
    }
    // The forty calls to the silent one would take a minute.
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Anybody who may register an endpoint may register many, each at another host that takes a call and says nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn however_many_hosts_are_dead_the_others_are_served() {
    let willing = [PushService::willing().await, PushService::willing().await];
    let more = [("SEQLINE_PUSH_TIMEOUT_MS", "120000"), ("SEQLINE_PUSH_CALLS_MAX", "4")];
    let mut fleet = ProcessFleet::start_with(RedisKind::Single, 1, 1, &[&ENVS[..], &more].concat()).await;
    let (ann, mallory) = (fleet.client(0, &User::new("ann")), fleet.client(0, &User::new("mallory")));
    let browsers = willing.each_ref().map(|service| Browser::new(service, "dan"));
    for browser in &browsers {
        browser.register(&fleet.client(0, &User::new("dan")), true).await.expect(201);
    }
    let written_to_dan = async |n: usize| {
        ann.send_to_peer("dan", &format!("k{n}"), "hello").await.expect(201);
        for (service, browser) in willing.iter().zip(&browsers) {
            service.has_taken(browser, n, PATIENCE).await;
        }
    };
    written_to_dan(1).await;
    let called = Arc::new(AtomicUsize::new(0));
    let mut dead = tokio::task::JoinSet::new();
    for n in 0..16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/{n}", listener.local_addr().unwrap());
        let mut subscription = Browser::new(&willing[0], "dead").subscription(false);
        subscription["endpoint"] = json!(endpoint);
        mallory.put("/v1/push/subscriptions", Some(&subscription)).await.expect(201);
        let called = Arc::clone(&called);
        dead.spawn(async move {
            let mut held = Vec::new();
            while let Ok((socket, _)) = listener.accept().await {
                called.fetch_add(1, Ordering::SeqCst);
                held.push(socket);
            }
        });
    }
    ann.send_to_peer("mallory", "k", "hello").await.expect(201);
    eventually("dead ones are called", PATIENCE, async || called.load(Ordering::SeqCst) > 0).await;
    for n in 2..5 {
        written_to_dan(n).await;
    }
    assert!(called.load(Ordering::SeqCst) <= 2, "half of the calls at most");
    // A worker that begins anew does not begin with the dead.
    fleet.workers[0].kill().await;
    let successor = fleet.add_worker();
    fleet.workers[successor].wait_ready().await;
    eventually("others of the dead are called", PATIENCE, async || called.load(Ordering::SeqCst) >= 4).await;
    written_to_dan(5).await;
    assert!(called.load(Ordering::SeqCst) <= 4, "half of the calls at most");
}

/// What answers, and then never comes to the end of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_drips_keeps_no_call_open() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/x", listener.local_addr().unwrap());
    let dripping = tokio::spawn(async move {
        let mut held = Vec::new();
        while let Ok((mut socket, _)) = listener.accept().await {
            socket.read_u8().await.unwrap();
            socket.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 100\r\n\r\n.").await.unwrap();
            held.push(socket);
        }
    });
    let lookup: Lookup = Arc::new(|_| Box::pin(async { Ok(Vec::new()) }));
    let door = Door::new(VapidKey::read(FLAGS[1]).unwrap(), None, Duration::from_secs(3_600), true, lookup).unwrap();
    let (endpoint, keys, terms) = (Endpoint::parse(&endpoint, true).unwrap(), keys(), terms());
    let delivered = door.deliver(&endpoint, &keys, &terms, b"{}", 1_764_500_000_000);
    let delivered = tokio::time::timeout(PATIENCE, delivered).await.expect("it ends");
    assert_eq!(delivered.unwrap().status, 201);
    dripping.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_is_killed_while_it_pushes_loses_nothing() {
    let service = PushService::start(|pushed| if pushed.path.ends_with("bob") { Reply::Silence } else { Reply::Status(201) }).await;
    let envs = [&ENVS[..], &[("SEQLINE_PUSH_TIMEOUT_MS", "1000")]].concat();
    let mut fleet = ProcessFleet::start_with(RedisKind::Single, 2, 1, &envs).await;
    let ann = User::new("ann");
    let browsers = ["bob", "cid"].map(|name| Browser::new(&service, name));
    for (n, browser) in browsers.iter().enumerate() {
        browser.register(&fleet.client(n, &User::new(browser.name.clone())), true).await.expect(201);
    }
    let group = fleet.client(0, &ann).create_group("Lake", &["bob", "cid"]).await;
    fleet.client(1, &ann).send(&group, "k1", "one").await.expect(201);
    eventually("a call hangs", PATIENCE, async || service.pushed().iter().any(|one| one.path.ends_with("bob"))).await;
    fleet.workers[0].kill().await;
    fleet.client(0, &ann).send_to_peer("cid", "k2", "two").await.expect(201);
    service.behave(|_| Reply::Status(201));
    let successor = fleet.add_worker();
    fleet.workers[successor].wait_ready().await;
    assert_eq!(service.has_taken(&browsers[0], 1, PATIENCE).await[0]["message"]["preview"], "one");
    service.has_taken(&browsers[1], 2, PATIENCE).await;
    nothing_waits(fleet.database(), 2).await;
    eventually("it is counted", PATIENCE, async || {
        fleet.workers[successor].metric("seqline_pushes_total{outcome=\"delivered\"}").await.is_some_and(|count| count >= 2.0)
            && fleet.workers[successor].metric("seqline_push_queue").await == Some(0.0)
    })
    .await;
}

/// Keys of a browser (RFC 8291, appendix A).
fn keys() -> BrowserKeys {
    let p256dh = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";
    BrowserKeys::parse(p256dh, "BTBZMqHH6r4Tts7J_aSIgg").unwrap()
}

fn terms() -> Terms {
    Terms { ttl_s: 60, urgency: Urgency::Normal, topic: "t".into() }
}

/// A name that leads elsewhere when it is first looked up (to the address of nobody), and to this machine ever after.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_that_turns_to_a_private_address_is_not_called() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&accepted);
    let accepting = tokio::spawn(async move {
        while listener.accept().await.is_ok() {
            counted.fetch_add(1, Ordering::SeqCst);
        }
    });
    let asked = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&asked);
    let lookup: Lookup = Arc::new(move |_| {
        // A port in the answer is the one that is called.
        let first = counting.fetch_add(1, Ordering::SeqCst) == 0;
        let address: SocketAddr = if first { "[100::1]:443".parse().unwrap() } else { SocketAddr::from(([127, 0, 0, 1], port)) };
        Box::pin(async move { Ok(vec![address]) })
    });
    let door = |allow_loopback: bool| {
        let key = VapidKey::read(FLAGS[1]).unwrap();
        Door::new(key, None, Duration::from_secs(2), allow_loopback, Arc::clone(&lookup)).unwrap()
    };
    let endpoint = Endpoint::parse("https://push.rebinding.app/x", false).unwrap();
    let (keys, terms) = (keys(), terms());
    let guarded = door(false);
    for _ in 0..3 {
        assert_eq!(guarded.deliver(&endpoint, &keys, &terms, b"{}", 1_764_500_000_000).await, Err(PushFault::Unreachable));
    }
    assert_eq!(asked.load(Ordering::SeqCst), 3);
    assert_eq!(accepted.load(Ordering::SeqCst), 0, "it was called");
    // The very same without the guard is called: the test would see it.
    assert!(door(true).deliver(&endpoint, &keys, &terms, b"{}", 1_764_500_000_000).await.is_err());
    assert!(accepted.load(Ordering::SeqCst) > 0);
    accepting.abort();
}
