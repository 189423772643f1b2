//! Very many streams at one gateway: readers that take nothing while much passes, streams that come and go, and all of them coming back at
//! once when their gateway is killed. The suite plays a few; `.ci/streams` plays as many as the README says, and prints what it measured.

use std::time::{Duration, Instant};

use rand::Rng as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::harness::{Client, PATIENCE, ProcessFleet, RedisKind, User, eventually};

/// Members of one group here.
const GROUP: usize = 100;
/// Streams that are being opened at the same time.
const OPENING: usize = 200;
/// Memory in KiB that a reader which takes nothing may cost its gateway: 128 KiB are queued for it at most and an event more, 32 KiB wait in the
/// HTTP server, and the allocator rounds up.
const STALLED_KIB_MAX: u64 = 384;
/// Memory in KiB that a gateway takes for the work itself, whoever listens.
const WORK_KIB_MAX: u64 = 16 * 1024;
/// Memory in KiB that may stay behind when all streams are gone: what the allocator keeps for the next ones.
const LEFT_KIB_MAX: u64 = 64 * 1024;

/// How many, when the environment does not say.
fn number(name: &str, otherwise: usize) -> usize {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")),
        Err(_) => otherwise,
    }
}

/// A stream read by hand: its bytes are looked through for words, and nothing else is done with them.
struct Raw {
    socket: TcpStream,
    seen: Vec<u8>,
}

impl Raw {
    async fn open(base: &str, user: &User, after: Option<&str>) -> std::io::Result<Self> {
        let socket = TcpStream::connect(base.trim_start_matches("http://")).await?;
        let mut raw = Self { socket, seen: Vec::new() };
        let place = after.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
        let head = format!("GET /v1/events HTTP/1.1\r\nHost: x\r\n{place}Authorization: Bearer {}\r\n\r\n", user.token);
        raw.socket.write_all(head.as_bytes()).await?;
        Ok(raw)
    }

    /// Reads on until these words came; false when the stream ends before.
    async fn hears(&mut self, words: &str) -> bool {
        let mut from = 0;
        loop {
            let found = self.seen[from..].windows(words.len()).any(|part| part == words.as_bytes());
            if found {
                return true;
            }
            from = self.seen.len().saturating_sub(words.len());
            let mut piece = [0; 16 * 1024];
            match tokio::time::timeout(4 * PATIENCE, self.socket.read(&mut piece)).await.expect("the stream is heard") {
                Ok(0) | Err(_) => return false,
                Ok(count) => self.seen.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// Reads on until these words came, and forgets what was read up to them; false when the stream ends before, or was told to read anew.
    async fn passes(&mut self, words: &str) -> bool {
        let came = self.hears(words).await;
        let at = self.seen.windows(words.len()).position(|part| part == words.as_bytes()).map_or(self.seen.len(), |at| at + words.len());
        let passed: Vec<u8> = self.seen.drain(..at).collect();
        came && !passed.windows(13).any(|part| part == b"event: resync")
    }

    /// The last id that it was given.
    fn last_id(&self) -> Option<String> {
        let text = String::from_utf8_lossy(&self.seen);
        text.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().map(str::to_owned)
    }
}

/// Opens one for each of these users, and waits until each has been greeted.
async fn open_all(base: &str, users: &[User]) -> Vec<(User, Raw)> {
    let (mut opening, mut open, mut next) = (JoinSet::new(), Vec::with_capacity(users.len()), users.iter());
    loop {
        while opening.len() < OPENING
            && let Some(user) = next.next()
        {
            let (base, user) = (base.to_owned(), user.clone());
            opening.spawn(async move {
                let mut raw = Raw::open(&base, &user, None).await.unwrap();
                assert!(raw.hears("event: hello").await, "{}", String::from_utf8_lossy(&raw.seen));
                (user, raw)
            });
        }
        match opening.join_next().await {
            Some(done) => open.push(done.unwrap()),
            None => return open,
        }
    }
}

/// Groups in which each of these users is once; the first of each has made it.
async fn groups_of(at: impl Fn(&User) -> Client, users: &[User]) -> Vec<(Client, String)> {
    let mut groups = Vec::new();
    for some in users.chunks(GROUP) {
        let others: Vec<&str> = some[1..].iter().map(|user| user.id.as_str()).collect();
        let maker = at(&some[0]);
        let group = maker.create_group("many", &others).await;
        groups.push((maker, group));
    }
    groups
}

/// Resident memory in KiB.
fn resident_kib(pid: u32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.trim().parse().ok()).unwrap()
}

/// Open files.
fn files(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_take_nothing_cost_little_while_much_passes() {
    let (count, mib) = (number("STREAMS_STALLED", 20), number("STREAMS_MIB", 4));
    // 4,000 characters of three bytes, the longest text there is.
    let body = "中".repeat(3_990);
    let messages = (mib << 20) / body.len();
    let fleet = ProcessFleet::start_with(RedisKind::Single, 1, 1, &[("SEQLINE_STREAM_STALL_MS", "600000")]).await;
    let (gateway, pid) = (fleet.gateways[0].url(), fleet.gateways[0].pid());
    let users = User::many(count + 2);
    let writer = fleet.client(0, &users[0]).kept_alive();
    let others: Vec<&str> = users[1..].iter().map(|user| user.id.as_str()).collect();
    let group = writer.create_group("much", &others).await;
    let mut healthy = open_all(&gateway, &users[1..2]).await.remove(0).1;
    let stalled = open_all(&gateway, &users[2..]).await;
    let before = resident_kib(pid);
    let heard = tokio::spawn(async move {
        let mut seqs = 0;
        while seqs < messages {
            assert!(healthy.passes(&format!("\"seq\":{},", seqs + 1)).await, "{seqs} of {messages}");
            seqs += 1;
        }
        Instant::now()
    });
    let begun = Instant::now();
    for n in 0..messages {
        let message = json!({"client_id": format!("m-{n}"), "body": body});
        writer.send_message(&group, &message).await.expect(201);
    }
    let behind = heard.await.unwrap().saturating_duration_since(begun);
    let grown = resident_kib(pid).saturating_sub(before);
    let each = grown / count as u64;
    println!(
        "{count} stalled readers while {mib} MiB passed in {behind:?}: {each} KiB of the gateway's memory each (at most {STALLED_KIB_MAX}); {} streams stay",
        fleet.gateways[0].metric("seqline_streams_open").await.unwrap()
    );
    assert!(grown <= STALLED_KIB_MAX * count as u64 + WORK_KIB_MAX, "{each} KiB for each stalled reader");
    // They wake up, and have missed nothing: the first and the last of them read it all.
    let mut stalled = stalled.into_iter();
    for (user, mut raw) in [stalled.next().unwrap(), stalled.next_back().unwrap()] {
        for seq in 1..=messages {
            assert!(raw.passes(&format!("\"seq\":{seq},")).await, "{} misses {seq} of {messages}", user.id);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_that_come_and_go_leave_nothing_behind() {
    let count = number("STREAMS_OPENED", 400);
    let wave = (count / 5).min(2_000);
    let mut fleet = ProcessFleet::start(RedisKind::Single, 1, 1).await;
    let (gateway, pid) = (fleet.gateways[0].url(), fleet.gateways[0].pid());
    let users = User::many(wave);
    let none_open = async |fleet: &ProcessFleet| {
        eventually("they are gone", 2 * PATIENCE, async || fleet.gateways[0].metric("seqline_streams_open").await == Some(0.0)).await;
    };
    // Once before the measure, so that what a gateway keeps for good is there.
    drop(open_all(&gateway, &users).await);
    none_open(&fleet).await;
    let (memory, open_files) = (resident_kib(pid), files(pid));
    let (begun, mut opened, mut most) = (Instant::now(), 0, 0);
    while opened < count {
        let open = open_all(&gateway, &users).await;
        opened += open.len();
        most = most.max(resident_kib(pid));
        assert_eq!(fleet.gateways[0].metric("seqline_streams_open").await, Some(open.len() as f64));
        drop(open);
        none_open(&fleet).await;
    }
    let (memory_after, files_after) = (resident_kib(pid), files(pid));
    println!(
        "{opened} streams opened and dropped in {:?}, {wave} at a time: memory {memory} KiB before, {most} at most, {memory_after} after; \
         files {open_files} before, {files_after} after",
        begun.elapsed()
    );
    assert!(memory_after.saturating_sub(memory) < LEFT_KIB_MAX, "{memory} KiB became {memory_after}");
    assert!(files_after <= open_files + 16, "{open_files} files became {files_after}");
    eventually("nobody wants to be woken there any more", 2 * PATIENCE, async || wake_ups_wanted(&mut fleet).await == 0).await;
}

/// How many users' logs name a gateway that wants to know of them.
async fn wake_ups_wanted(fleet: &mut ProcessFleet) -> usize {
    let mut wire = fleet.redis().nodes()[0].wire().await.unwrap();
    let mut wanted = 0;
    for key in fleet.redis().keys("*").await {
        if wire.command(&["TYPE", &key]).await.unwrap().text() == Some("hash") {
            let fields = wire.command(&["HKEYS", &key]).await.unwrap();
            wanted += fields.items().iter().filter_map(|field| field.text()).filter(|field| field.starts_with("g:")).count();
        }
    }
    wanted
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_who_were_at_a_gateway_that_is_killed_come_back_and_miss_nothing() {
    let count = number("STREAMS_STORM", 300);
    let mut fleet = ProcessFleet::start(RedisKind::Single, 2, 1).await;
    let users = User::many(count);
    let groups = groups_of(|user| fleet.client(1, user), &users).await;
    let open = open_all(&fleet.gateways[0].url(), &users).await;
    let other = fleet.gateways[1].url();
    fleet.gateways[0].kill().await;
    let killed = Instant::now();
    let mut back = JoinSet::new();
    for (user, mut raw) in open {
        let other = other.clone();
        back.spawn(async move {
            assert!(!raw.hears("said while they were away").await, "its gateway is dead");
            let after = raw.last_id().unwrap();
            let mut tries = 0;
            loop {
                // Full jitter, as a client should.
                let wait = rand::rng().random_range(0..=(1_000_u64 << tries.min(4)));
                tokio::time::sleep(Duration::from_millis(wait)).await;
                if let Ok(mut again) = Raw::open(&other, &user, Some(&after)).await
                    && again.hears("event: hello").await
                {
                    let greeted = killed.elapsed();
                    assert!(again.hears("said while they were away").await, "{}", String::from_utf8_lossy(&again.seen));
                    assert!(!String::from_utf8_lossy(&again.seen).contains("event: resync"), "{} was told to read anew", user.id);
                    return (greeted, killed.elapsed(), tries, again);
                }
                tries += 1;
            }
        });
    }
    for (number, (maker, group)) in groups.iter().enumerate() {
        maker.send(group, &format!("away-{number}"), "said while they were away").await.expect(201);
    }
    let all = back.join_all().await;
    let latest = |pick: fn(&(Duration, Duration, u32, Raw)) -> Duration| all.iter().map(pick).max().unwrap();
    println!(
        "{count} streams whose gateway was killed: all greeted by another one after {:?}, all caught up after {:?}; {} further tries",
        latest(|one| one.0),
        latest(|one| one.1),
        all.iter().map(|one| one.2).sum::<u32>()
    );
    assert_eq!(fleet.gateways[1].metric("seqline_streams_open").await, Some(count as f64));
}
