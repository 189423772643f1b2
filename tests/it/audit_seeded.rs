//! Proof that the audit finds what it says it finds: every code is seeded by hand into a conversation, or into what is around, and found
//! with exactly the codes that follow from it; what can be mended is mended, and then nothing is found.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;

use seqline::actions::Stores;
use seqline::domain::audit::{Code, Finding};
use seqline::domain::ids::{ConversationId, PartitionId, ShardId};
use seqline::redis::keys;
use sqlx::{AssertSqlSafe, PgConnection};

use crate::audit_scene::{People, all, audit, audit_from, beside, codes, cool, run, settled};
use crate::harness::pictures::PictureFleet;
use crate::harness::{Fleet, User, on_both};
use crate::scene::{redis, state, user};

/// How a conversation is spoilt.
#[derive(Clone, Copy)]
enum How {
    /// In Postgres, while it is out of Redis: with this statement, in which `$1` is the conversation.
    Cold(&'static str),
    /// In Postgres, while it is in Redis.
    Warm(&'static str),
    /// In Redis: a command, a key of the conversation, and its arguments; `~` stands for U+0000.
    Redis(&'static str, &'static str, &'static [&'static str]),
}
use How::{Cold, Redis, Warm};

/// What is spoilt, and every code that follows.
const SEEDS: &[(How, &[Code])] = &[
    (Cold("DELETE FROM messages WHERE conv_id = $1 AND seq = 3"), &[Code::Hole, Code::LogPointerLost]),
    (Warm("DELETE FROM messages WHERE conv_id = $1 AND seq = 3"), &[Code::Hole]),
    (Cold("INSERT INTO voids VALUES ($1, 3, 3)"), &[Code::MessageInVoid]),
    (Cold("INSERT INTO voids VALUES ($1, 101, 110), ($1, 105, 120)"), &[Code::VoidOverlap]),
    (
        Cold("UPDATE messages SET id = (SELECT id FROM messages WHERE conv_id = $1 AND seq = 2) WHERE conv_id = $1 AND seq = 3"),
        &[Code::MessageTwice],
    ),
    (Warm("UPDATE messages SET id = gen_random_uuid() WHERE conv_id = $1 AND seq = 3"), &[Code::NumberTwice]),
    (Warm("UPDATE messages SET body = 'others' WHERE conv_id = $1 AND seq = 3"), &[Code::MessageDiffers]),
    (Warm("UPDATE messages SET sender = 'eve' WHERE conv_id = $1 AND seq = 3"), &[Code::MessageDiffers]),
    (Cold("UPDATE conversations SET head_seq = 2 WHERE id = $1"), &[Code::HeadBehind]),
    (Cold("UPDATE conversations SET rev = 1 WHERE id = $1"), &[Code::RevBehind]),
    (Redis("HSET", "head", &["head", "7", "next", "8"]), &[Code::HeadBelowArchive, Code::RevIndexWrong, Code::MarkBeyondHead]),
    (Redis("HSET", "head", &["rev", "1"]), &[Code::RevBelowArchive]),
    (Warm("UPDATE messages SET rev = rev + 100 WHERE conv_id = $1 AND seq = 1"), &[Code::RevBelowArchive, Code::RevBehind]),
    (Redis("HSET", "head", &["next", "9"]), &[Code::NextWrong]),
    (Redis("HSET", "head", &["next", "12"]), &[Code::NextWrong]),
    (Cold("INSERT INTO leases VALUES ($1, 5, 20, 0, 0, 'ended', 8)"), &[Code::LeaseOverlap]),
    (Redis("HSET", "head", &["lease_to", "99999999"]), &[Code::LeaseUnknown]),
    (Redis("DEL", "head", &[]), &[Code::KeysLost]),
    (Cold("UPDATE conversations SET facts_rev = NULL, created_at_ms = NULL WHERE id = $1"), &[Code::FactsMissing, Code::IndexStale]),
    (Cold("UPDATE conversations SET shard = (shard + 1) % 8 WHERE id = $1"), &[Code::ShardWrong]),
    (Cold("UPDATE members SET role = 'owner' WHERE conv_id = $1 AND user_id = 'bob'"), &[Code::OwnerCount]),
    (Cold("UPDATE members SET role = 'member' WHERE conv_id = $1"), &[Code::OwnerCount]),
    (Cold("UPDATE conversations SET owner = 'bob' WHERE id = $1"), &[Code::OwnerMismatch]),
    (Redis("HSET", "head", &["owner", "bob"]), &[Code::OwnerMismatch, Code::FactsDiffer]),
    (Warm("UPDATE members SET left_rev = rev WHERE conv_id = $1 AND user_id = 'cid'"), &[Code::MembersDiffer]),
    (Redis("HSET", "head", &["mcount", "99"]), &[Code::MemberCount]),
    (Warm("UPDATE conversations SET title = 'Other' WHERE id = $1"), &[Code::FactsDiffer]),
    (Cold("UPDATE members SET joined_seq = 9999 WHERE conv_id = $1 AND user_id = 'cid'"), &[Code::JoinBeyondHead]),
    (Cold("UPDATE read_marks SET seq = 9999 WHERE conv_id = $1 AND user_id = 'bob'"), &[Code::MarkBeyondHead]),
    (Redis("HSET", "marks", &["bob", "9999 1"]), &[Code::MarkBeyondHead]),
    (Redis("HSET", "marks", &["bob", "1 1"]), &[Code::MarkMovedBack]),
    (
        Cold(
            "INSERT INTO preferences SELECT conv_id, user_id, joined_rev, false, false, NULL, NULL, 9999, rev FROM members WHERE conv_id = $1 AND user_id = 'bob'",
        ),
        &[Code::ClearedBeyondHead],
    ),
    (Redis("ZADD", "uncounted", &["2", "2"]), &[Code::UnreadWrong]),
    (Redis("ZREM", "uncounted", &["7"]), &[Code::UnreadWrong]),
    (Redis("ZADD", "mentions", &["0", "cid~0000000000000002"]), &[Code::MentionWrong]),
    (Redis("ZREM", "mentions", &["cid~0000000000000005"]), &[Code::MentionMissing]),
    (Redis("HDEL", "window", &["4"]), &[Code::WindowHole, Code::RevIndexWrong]),
    (Redis("ZADD", "revs", &["1", "4"]), &[Code::RevIndexWrong]),
    (Warm("INSERT INTO voids VALUES ($1, 5000, 5001)"), &[Code::VoidsDiffer, Code::LeaseOverlap]),
    (Redis("HSET", "keys0", &["bob~ghost", "9999 abc"]), &[Code::KeyWithoutMessage]),
    (Redis("HSET", "keys0", &["bob~ghost", "2 abc"]), &[Code::KeyElsewhere]),
    (Redis("HDEL", "keys0", &["bob~k2"]), &[Code::KeyMissing]),
    (Redis("HSET", "window", &["4", "nonsense"]), &[Code::Unreadable]),
    (Redis("HSET", "head", &["floor", "x"]), &[Code::Unreadable]),
    (Cold("UPDATE messages SET body = 'leak' WHERE conv_id = $1 AND seq = 7"), &[Code::DeletedWithWords]),
    (Cold("UPDATE messages SET content = jsonb_set(content, '{reply_to}', '7777') WHERE conv_id = $1 AND seq = 4"), &[Code::QuoteBroken]),
    (Cold("UPDATE messages SET content = '{\"reply_to\": 9}' WHERE conv_id = $1 AND seq = 3"), &[Code::QuoteBroken]),
    (
        Cold("UPDATE messages SET content = '{\"reactions\": [[\"x\", [\"bob\", \"bob\"]]]}' WHERE conv_id = $1 AND seq = 1"),
        &[Code::ReactionsWrong],
    ),
    (
        Cold("UPDATE messages SET content = '{\"reactions\": [[\"x\", [\"nobody\"]]]}' WHERE conv_id = $1 AND seq = 1"),
        &[Code::ReactionsWrong],
    ),
    (Cold("INSERT INTO message_versions VALUES ($1, 3, 99999999999, 1, 'x', '{}')"), &[Code::VersionWrong]),
    (
        Cold("UPDATE media SET state = 'sweeping' WHERE id IN (SELECT media_id FROM message_media WHERE conv_id = $1)"),
        &[Code::MediaMissing],
    ),
    (Cold("DELETE FROM message_media WHERE conv_id = $1"), &[Code::MediaReferenceMissing]),
    (Cold("INSERT INTO message_media SELECT conv_id, 2, media_id FROM message_media WHERE conv_id = $1"), &[Code::MediaReferenceStale]),
    (Cold("DELETE FROM message_terms WHERE conv_id = $1 AND seq = 2"), &[Code::SearchMissing]),
    (Cold("UPDATE message_terms SET terms = 'leak'::tsvector WHERE conv_id = $1 AND seq = 7"), &[Code::SearchStale]),
    (Cold("INSERT INTO webhook_queue VALUES ($1, 1, 0, 'message.created', 1, '{}', 1)"), &[Code::WebhookStuck]),
];

type Steps<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// What is spoilt around a conversation: the log and list of a user who belongs to it alone.
const AROUND: &[(&str, Code)] = &[
    ("log-pointer", Code::LogPointerLost),
    ("log-again", Code::LogDisordered),
    ("log-hole", Code::LogHole),
    ("log-bounds", Code::LogBounds),
    ("list-less", Code::IndexMissing),
    ("list-more", Code::IndexStale),
];

async fn sql(connection: &mut PgConnection, statement: &'static str, id: &ConversationId) {
    let done = sqlx::query(statement).bind(id.as_str()).execute(connection).await.unwrap();
    assert!(done.rows_affected() > 0, "{statement}");
}

async fn spoil(stores: &Stores, connection: &mut PgConnection, id: &ConversationId, how: How) {
    match how {
        Cold(statement) | Warm(statement) => sql(connection, statement, id).await,
        Redis(name, key, args) => {
            let k = stores.keys.conversation(id);
            let key = match key {
                "head" => k.head,
                "marks" => k.marks,
                "window" => k.window,
                "revs" => k.revs,
                "uncounted" => k.uncounted,
                "mentions" => k.mentions,
                "keys0" => k.keys_0,
                other => panic!("{other}"),
            };
            let args: Vec<String> = args.iter().map(|arg| arg.replace('~', "\0")).collect();
            let words: Vec<&str> = std::iter::once(key.as_str()).chain(args.iter().map(String::as_str)).collect();
            redis(stores, name, &words).await;
        }
    }
}

fn spoil_around<'a>(stores: &'a Stores, name: &'a str, id: &'a ConversationId) -> Steps<'a> {
    Box::pin(async move {
        let k = stores.keys.user(&user(name));
        let append = |seq: u64| format!("m {id} 1 {seq} 1");
        match name {
            "log-pointer" | "log-again" => {
                let pointer = append(if name == "log-again" { 1 } else { 9_999 });
                redis(stores, "XADD", &[&k.log, "99999999999999-0", "p", &pointer]).await;
                redis(stores, "HSET", &[&k.log_info, "last", "99999999999999-0"]).await;
            }
            "log-hole" => {
                // The third entry from the end is a message between two others.
                let entries = redis(stores, "XRANGE", &[&k.log, "-", "+"]).await;
                let second = entries
                    .as_list()
                    .unwrap()
                    .iter()
                    .find(|entry| format!("{entry:?}").contains(&format!("m {id} ")) && format!("{entry:?}").contains(" 3 "));
                let entry = second.unwrap().items().unwrap().str().unwrap().to_owned();
                redis(stores, "XDEL", &[&k.log, &entry]).await;
            }
            "log-bounds" => drop(redis(stores, "HSET", &[&k.log_info, "last", "1-1"]).await),
            "list-less" => drop(redis(stores, "ZREM", &[&k.index, id.as_str()]).await),
            "list-more" => drop(redis(stores, "ZADD", &[&k.index, "1", "system:elsewhere"]).await),
            other => panic!("{other}"),
        }
    })
}

type Sets = BTreeMap<String, BTreeSet<&'static str>>;

fn add(sets: &mut Sets, what: &str, code: Code) {
    sets.entry(what.to_owned()).or_default().insert(code.as_str());
}

/// Codes by conversation, those of users' logs and lists by the user.
fn by_place(found: &[Finding], seeded: &BTreeSet<String>) -> Sets {
    let mut sets = Sets::new();
    for f in found {
        let own = f.user.as_deref().filter(|user| AROUND.iter().any(|(name, _)| name == user));
        let conversation = f.conversation.as_ref().map(ToString::to_string).filter(|id| seeded.contains(id));
        let place = own.map(str::to_owned).or(conversation).or(f.user.clone()).unwrap_or_default();
        add(&mut sets, &place, f.code);
    }
    sets
}

/// A conversation to be spoilt: itself, or what is around it.
type Seed = (Option<(How, &'static [Code])>, Option<(&'static str, Code)>);

/// Makes a conversation for each seed, spoils them, and gives what must be found.
async fn sow(fleet: &Fleet, stores: &Stores, people: &People, repaired: bool) -> Sets {
    let fits = |codes: &[Code]| codes.iter().all(|code| code.is_repaired()) == repaired;
    let mut seeds: Vec<Seed> = Vec::new();
    seeds.extend(SEEDS.iter().filter(|(_, codes)| fits(codes)).map(|seed| (Some(*seed), None)));
    seeds.extend(AROUND.iter().filter(|(_, code)| fits(&[*code])).map(|around| (None, Some(*around))));
    let talks = seeds.iter().map(|(_, around)| async move {
        let more: Vec<&str> = around.iter().map(|(name, _)| *name).collect();
        people.talk(&more).await
    });
    let made = all(talks.collect()).await;
    let sown: Vec<_> = made.into_iter().zip(seeds).map(|(id, (seed, around))| (id, seed, around)).collect();
    // Their lists are there, and whole.
    for name in AROUND.iter().map(|(name, _)| *name).chain(["ann", "bob", "cid"]) {
        fleet.client(0, &User::new(name)).conversations().await.expect(200);
    }
    settled(fleet, stores).await;
    let mut connection = fleet.database().connect().await;
    let mut expected = Sets::new();
    all(sown.iter().filter(|(_, seed, _)| matches!(seed, Some((Cold(_), _)))).map(|(id, ..)| cool(stores, id)).collect()).await;
    for (id, seed, around) in &sown {
        if let Some((how, codes)) = seed {
            spoil(stores, &mut connection, id, *how).await;
            codes.iter().for_each(|code| add(&mut expected, id.as_str(), *code));
        }
        if let Some((name, code)) = around {
            spoil_around(stores, name, id).await;
            add(&mut expected, name, *code);
        }
    }
    expected
}

fn seeded(expected: &Sets) -> BTreeSet<String> {
    expected.keys().cloned().collect()
}

on_both! {
    async fn what_is_spoilt_is_found_and_what_can_be_mended_is_mended(fleet: PictureFleet) {
        let stores = beside(&fleet).await;
        let people = People::of(&fleet);
        let mut connection = fleet.database().connect().await;
        let mut expected = sow(&fleet, &stores, &people, true).await;
        let unused = people.ann.upload_picture().await;
        let forget = AssertSqlSafe(format!("UPDATE media SET check_at_ms = NULL WHERE id = '{unused}'"));
        sqlx::raw_sql(forget).execute(&mut connection).await.unwrap();
        // This one, and the one whose reference was taken away.
        add(&mut expected, "ann", Code::MediaUnwatched);
        let found = audit(&stores).await;
        assert_eq!(by_place(&found, &seeded(&expected)), expected, "{found:#?}");

        let mended = run(&fleet, &["--repair", "--json"]).await;
        let text = String::from_utf8_lossy(&mended.stdout).into_owned();
        assert_eq!(mended.status.code(), Some(0), "{text}");
        let (told, summary) = codes(&mended);
        assert_eq!(summary["repaired"], serde_json::json!(told.len()), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate().filter(|(_, line)| line.contains("\"code\"")) {
            assert!(lines[at + 1].contains("\"repair\""), "a repair was not told of before it was made: {line}");
        }
        settled(&fleet, &stores).await;
        let again = run(&fleet, &["--json"]).await;
        assert_eq!(again.status.code(), Some(0), "{}", String::from_utf8_lossy(&again.stdout));

        let expected = sow(&fleet, &stores, &people, false).await;
        let pair = seqline::domain::ids::ConversationId::parse(&crate::harness::client::pair("ann", "pal")).unwrap();
        people.ann.send_to_peer("pal", "p1", "hello").await.expect(201);
        settled(&fleet, &stores).await;
        cool(&stores, &pair).await;
        sql(&mut connection, "UPDATE conversations SET pair_high = pair_high || 'x' WHERE id = $1", &pair).await;
        let mut expected = expected;
        add(&mut expected, pair.as_str(), Code::PairWrong);
        let found = audit(&stores).await;
        assert_eq!(by_place(&found, &seeded(&expected)), expected, "{found:#?}");
    }

    async fn what_is_spoilt_about_shards_is_found(fleet: PictureFleet) {
        let mut fleet = fleet;
        let stores = beside(&fleet).await;
        let people = People::of(&fleet);
        let mut connection = fleet.database().connect().await;
        let mut by_shard: BTreeMap<u16, ConversationId> = BTreeMap::new();
        while by_shard.len() < 6 {
            let id = people.talk(&[]).await;
            by_shard.insert(stores.keys.shard_of(&id).0, id);
        }
        settled(&fleet, &stores).await;
        fleet.fleet().stop_worker(0).await;
        assert_eq!(audit(&stores).await, []);
        let shards: Vec<(ShardId, ConversationId)> = by_shard.into_iter().map(|(shard, id)| (ShardId(shard), id)).collect();
        let subject = |place: usize, more: &str| format!("shard {}{more}", shards[place].0.0);

        // Entries that are gone before they were archived; the conversation misses what they brought.
        let (shard, id) = &shards[0];
        people.ann.send(id.as_str(), "lost", "lost").await.expect(201);
        people.ann.send(id.as_str(), "kept", "kept").await.expect(201);
        let last = state(&stores, *shard).await.last;
        redis(&stores, "XDEL", &[&keys::outbox(*shard), &format!("{}-{}", last.epoch, last.n - 1)]).await;
        // A cursor beyond what was written, and a mark.
        let (shard, _) = &shards[1];
        redis(&stores, "HSET", &[&keys::shard_info(*shard), "archived", "0-999999"]).await;
        let (shard, _) = &shards[2];
        redis(&stores, "SET", &[&keys::delivered_mark(PartitionId(3), *shard), "0-999999"]).await;
        // Something aside.
        let (shard, id) = &shards[3];
        let kept = format!("{{\"why\":\"refused\",\"fields\":[[\"c\",\"{id}\"],[\"q\",\"77\"]]}}");
        redis(&stores, "HSET", &[&keys::aside(*shard), "0-1", &kept]).await;
        // Another epoch than was granted.
        let (shard, _) = &shards[4];
        sqlx::query("UPDATE shard_epochs SET epoch = 7 WHERE shard = $1").bind(i32::from(shard.0)).execute(&mut connection).await.unwrap();
        sqlx::query("INSERT INTO search_queue (queued_at_ms, conv_ids, seqs) VALUES (1, '{}', '{}')").execute(&mut connection).await.unwrap();

        let found = audit_from(&stores, seqline::actions::audit_everything::Place::Begin, 60_000).await;
        let told: BTreeSet<(Code, Option<String>)> = found.iter().map(|f| (f.code, f.subject.clone())).collect();
        let wanted = BTreeSet::from([
            (Code::OutboxGap, Some(subject(0, ""))),
            (Code::CursorBeyond, Some(subject(1, " archived"))),
            (Code::CursorBeyond, Some(subject(2, " partition 3"))),
            (Code::AsideWaiting, Some(subject(3, " 0-1"))),
            (Code::EpochDiffers, Some(subject(4, ""))),
            (Code::SearchBehind, None),
        ]);
        assert_eq!(told, wanted, "{found:#?}");
        let late = audit_from(&stores, seqline::actions::audit_everything::Place::Begin, -1).await;
        assert!(late.iter().any(|f| f.code == Code::BacklogOld && f.subject == Some(subject(0, ""))), "{late:#?}");
    }
}

#[test]
fn every_code_is_seeded() {
    let mut seeded: BTreeSet<Code> = SEEDS.iter().flat_map(|(_, codes)| codes.iter().copied()).collect();
    seeded.extend(AROUND.iter().map(|(_, code)| *code));
    seeded.extend([Code::MediaUnwatched, Code::PairWrong, Code::OutboxGap, Code::CursorBeyond, Code::AsideWaiting, Code::EpochDiffers]);
    seeded.extend([Code::SearchBehind, Code::BacklogOld]);
    let missing: Vec<&Code> = Code::ALL.iter().filter(|code| !seeded.contains(code)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The table of the operators' page, as the code has it.
fn table() -> String {
    let mut text = String::from("| code | it means | what to do |\n|---|---|---|\n");
    for code in Code::ALL {
        text.push_str(&format!("| `{}` | {} | {} |\n", code.as_str(), code.meaning(), code.what_to_do()));
    }
    text
}

#[test]
#[allow(clippy::disallowed_methods)]
fn the_operators_page_names_every_code() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/audit.md");
    let text = std::fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- codes:begin -->\n", "<!-- codes:end -->");
    let (before, rest) = text.split_once(begin).unwrap();
    let (there, after) = rest.split_once(end).unwrap();
    if std::env::var_os("SEQLINE_WRITE").is_some() {
        std::fs::write(&path, format!("{before}{begin}{}{end}{after}", table())).unwrap();
        return;
    }
    assert_eq!(there, table(), "run with SEQLINE_WRITE=1");
}
