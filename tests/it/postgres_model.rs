//! The archive against a model: whatever order, repetition and overlap the batches come in, what is read back is what Redis had.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestRunner};
use seqline::domain::block::Blocks;
use seqline::domain::conversation::{Conversation, ConversationView, History, Names, Unread};
use seqline::domain::ids::{ClientKey, ConversationId, Millis, Rev, Seq, ShardId, UserId};
use seqline::domain::membership::{Member, Role};
use seqline::domain::message::{Message, MessageKind};
use seqline::domain::preferences::{Preferences, PreferencesWish};
use seqline::domain::quote::ShownMessage;
use seqline::postgres::{ArchiveBatch, ConversationFacts, ConversationRow, MemberRow, PreferencesRow, ReadRow, Source};
use uuid::Uuid;

use crate::postgres_database::{Database, database, user};

/// Users of the model; the first two found the conversation.
const USERS: [&str; 5] = ["ann", "B", "\u{e9}va", "z", "\u{10FFFF}"];

#[derive(Clone, Debug)]
enum Op {
    Send(usize),
    /// A message that names two users.
    Name(usize, [usize; 2]),
    Edit(usize),
    Delete(usize),
    Read(usize, u64),
    Join(usize),
    Leave(usize),
    Role(usize),
    Title(u8),
    Lose(u64),
    /// Flags as bits, and up to where to clear.
    Prefer(usize, u8, u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let who = 0..USERS.len();
    let op = prop_oneof![
        4 => who.clone().prop_map(Op::Send),
        3 => (who.clone(), [who.clone(), who.clone()]).prop_map(|(w, named)| Op::Name(w, named)),
        2 => (who.clone(), any::<u8>(), 0..60_u64).prop_map(|(w, bits, to)| Op::Prefer(w, bits, to)),
        2 => any::<usize>().prop_map(Op::Edit),
        2 => any::<usize>().prop_map(Op::Delete),
        3 => (who.clone(), 0..60_u64).prop_map(|(w, s)| Op::Read(w, s)),
        2 => who.clone().prop_map(Op::Join),
        1 => who.clone().prop_map(Op::Leave),
        1 => who.prop_map(Op::Role),
        1 => any::<u8>().prop_map(Op::Title),
        1 => (1..5_u64).prop_map(Op::Lose),
    ];
    prop::collection::vec(op, 0..40)
}

/// One outbox entry as the archive gets it.
#[derive(Clone)]
struct Entry {
    message: Option<Message>,
    conversation: ConversationRow,
    members: Vec<MemberRow>,
    read: Option<ReadRow>,
    preferences: Option<PreferencesRow>,
}

/// A conversation as Redis has it.
struct Model {
    facts: Conversation,
    members: BTreeMap<UserId, Member>,
    marks: BTreeMap<UserId, (Seq, Millis)>,
    messages: BTreeMap<Seq, Message>,
    next: Seq,
    now: Millis,
    entries: Vec<Entry>,
}

impl Model {
    fn new(history: History) -> Self {
        let id = ConversationId::of_group(Uuid::now_v7());
        let facts = Conversation {
            id,
            title: None,
            owner: Some(user(USERS[0])),
            pair: None,
            history,
            member_count: 2,
            head_seq: 0,
            rev: 1,
            created_at: 1000,
            updated_at: 1000,
            dissolved: false,
            voids: Vec::new(),
            blocks: Blocks::default(),
        };
        let mut model = Self {
            facts,
            members: BTreeMap::new(),
            marks: BTreeMap::new(),
            messages: BTreeMap::new(),
            next: 1,
            now: 1000,
            entries: Vec::new(),
        };
        let mut rows = Vec::new();
        for (name, role) in [(USERS[0], Role::Owner), (USERS[1], Role::Member)] {
            let member =
                Member { user: user(name), role, joined_at: 1000, joined_seq: 0, joined_rev: 1, preferences: Preferences::default() };
            rows.push(model.member_row(&member, None));
            model.members.insert(member.user.clone(), member);
        }
        model.push(None, true, rows, None);
        model
    }

    fn member_row(&self, member: &Member, left_rev: Option<Rev>) -> MemberRow {
        MemberRow {
            conv: self.facts.id.clone(),
            user: member.user.clone(),
            role: member.role,
            joined_at: member.joined_at,
            joined_seq: member.joined_seq,
            joined_rev: member.joined_rev,
            left_rev,
            rev: self.facts.rev,
        }
    }

    fn push(&mut self, message: Option<Message>, with_facts: bool, members: Vec<MemberRow>, read: Option<ReadRow>) {
        let c = &self.facts;
        let facts = ConversationFacts {
            title: c.title.clone(),
            owner: c.owner.clone(),
            pair: None,
            history: c.history,
            created_at: c.created_at,
            dissolved: false,
        };
        let conversation = ConversationRow {
            id: c.id.clone(),
            shard: ShardId(0),
            facts: with_facts.then_some(facts),
            head_seq: c.head_seq,
            rev: c.rev,
            updated_at: c.updated_at,
        };
        self.entries.push(Entry { message, conversation, members, read, preferences: None });
    }

    fn message(&mut self, sender: &UserId, kind: MessageKind) -> Message {
        let seq = self.next;
        self.next += 1;
        self.facts.head_seq = seq;
        let sent = kind != MessageKind::System;
        let message = Message {
            id: Uuid::now_v7(),
            conversation: self.facts.id.clone(),
            seq,
            rev: self.facts.rev,
            sender: sender.clone(),
            client_id: sent.then(|| ClientKey::parse(&format!("k{seq}")).unwrap()),
            kind,
            body: if sent { format!("body {seq}") } else { String::new() },
            media: Vec::new(),
            reply_to: None,
            share: None,
            mentions: Vec::new(),
            reactions: Vec::new(),
            data: (!sent).then(|| serde_json::json!({"type": "joined"})),
            client_sent_at: None,
            created_at: self.now,
            edited_at: None,
            deleted_at: None,
            deleted_by: None,
            fingerprint: sent.then(|| "f".into()),
        };
        self.messages.insert(seq, message.clone());
        message
    }

    fn apply(&mut self, op: &Op) {
        let member = |model: &Self, who: usize| model.members.get(&user(USERS[who])).cloned();
        self.now += 10;
        let (rev, at) = (self.facts.rev + 1, self.now);
        match op {
            Op::Send(who) => {
                let Some(member) = member(self, *who) else { return };
                self.begin(rev, at);
                let message = self.message(&member.user, MessageKind::Text);
                self.marks.insert(member.user, (message.seq, at));
                self.push(Some(message), false, vec![], None);
            }
            Op::Name(who, named) => {
                let Some(member) = member(self, *who) else { return };
                self.begin(rev, at);
                let message = self.message(&member.user, MessageKind::Text);
                let named = named.map(|n| user(USERS[n])).into_iter().collect::<BTreeSet<_>>();
                let message = Message { mentions: named.into_iter().filter(|u| self.members.contains_key(u)).collect(), ..message };
                self.messages.insert(message.seq, message.clone());
                self.marks.insert(member.user, (message.seq, at));
                self.push(Some(message), false, vec![], None);
            }
            Op::Prefer(who, bits, to) => {
                let Some(member) = member(self, *who) else { return };
                let bit = |n: u8| (bits >> n & 1 == 1).then_some(bits >> (n + 4) & 1 == 1);
                let wish =
                    PreferencesWish { muted: bit(0), pinned: bit(1), hidden: bit(2), marked_unread: bit(3), cleared_to: Some(*to / 3) };
                let read = self.marks.get(&member.user).map_or(0, |m| m.0);
                let Some(preferences) = member.preferences.changed(&wish, self.facts.head_seq, read) else { return };
                self.facts.rev = rev;
                self.members.insert(member.user.clone(), Member { preferences, ..member.clone() });
                self.push(None, false, vec![], None);
                let row =
                    PreferencesRow { conv: self.facts.id.clone(), user: member.user, joined_rev: member.joined_rev, preferences, rev };
                self.entries.last_mut().unwrap().preferences = Some(row);
            }
            Op::Edit(pick) | Op::Delete(pick) => {
                let open: Vec<Seq> = self.messages.values().filter(|m| m.counts()).map(|m| m.seq).collect();
                if open.is_empty() {
                    return;
                }
                self.begin(rev, at);
                let Some(message) = self.messages.get_mut(&open[pick % open.len()]) else { return };
                message.rev = rev;
                if matches!(op, Op::Edit(_)) {
                    message.body = format!("edited at {at}");
                    message.edited_at = Some(at);
                } else {
                    message.body = String::new();
                    message.mentions = Vec::new();
                    message.deleted_at = Some(at);
                    message.deleted_by = Some(user(USERS[0]));
                }
                let message = message.clone();
                self.push(Some(message), false, vec![], None);
            }
            Op::Read(who, to) => {
                let Some(member) = member(self, *who) else { return };
                let to = (*to).min(self.facts.head_seq);
                if to <= self.marks.get(&member.user).map_or(0, |m| m.0) {
                    return;
                }
                self.begin(rev, at);
                self.marks.insert(member.user.clone(), (to, at));
                let row = ReadRow { conv: self.facts.id.clone(), user: member.user, seq: to, at };
                self.push(None, false, vec![], Some(row));
            }
            Op::Join(who) => {
                if member(self, *who).is_some() {
                    return;
                }
                self.begin(rev, at);
                let message = self.message(&user(USERS[*who]), MessageKind::System);
                let preferences = Preferences::default();
                let member = Member {
                    user: user(USERS[*who]),
                    role: Role::Member,
                    joined_at: at,
                    joined_seq: message.seq,
                    joined_rev: rev,
                    preferences,
                };
                self.marks.insert(member.user.clone(), (message.seq, at));
                let rows = vec![self.member_row(&member, None)];
                self.members.insert(member.user.clone(), member);
                self.push(Some(message), false, rows, None);
            }
            Op::Leave(who) => {
                let Some(member) = member(self, *who) else { return };
                self.begin(rev, at);
                let message = self.message(&member.user, MessageKind::System);
                self.members.remove(&member.user);
                let rows = vec![self.member_row(&member, Some(rev))];
                self.push(Some(message), false, rows, None);
            }
            Op::Role(who) => {
                let Some(mut member) = member(self, *who) else { return };
                self.begin(rev, at);
                member.role = if member.role == Role::Owner { Role::Member } else { Role::Owner };
                let rows = vec![self.member_row(&member, None)];
                self.members.insert(member.user.clone(), member);
                self.push(None, false, rows, None);
            }
            Op::Title(n) => {
                self.begin(rev, at);
                self.facts.title = (n % 4 != 0).then(|| format!("Title {n}"));
                self.push(None, true, vec![], None);
            }
            Op::Lose(count) => {
                self.facts.voids.push((self.next, self.next + count - 1));
                self.next += count;
            }
        }
        self.facts.member_count = self.members.len() as u64;
    }

    fn begin(&mut self, rev: Rev, at: Millis) {
        self.facts.rev = rev;
        self.facts.updated_at = at;
    }

    /// What a member sees, by brute force.
    fn view(&self, who: &UserId, unread_max: u64) -> Option<ConversationView> {
        let me = self.members.get(who)?.clone();
        let mark = self.marks.get(who).copied();
        let cleared = me.preferences.cleared_to;
        let visible = |m: &&Message| (self.facts.history == History::All || m.seq >= me.joined_seq) && m.seq > cleared;
        let read_seq = mark.map_or(0, |m| m.0);
        let news = |m: &&Message| m.seq > read_seq && m.sender != *who && m.counts();
        let unread = self.messages.values().filter(visible).filter(news).count() as u64;
        let named = self.messages.values().filter(visible).filter(news).filter(|m| m.mentions.contains(who)).count() as u64;
        Some(ConversationView {
            outside: false,
            conversation: self.facts.clone(),
            read_seq,
            read_at: mark.map(|m| m.1),
            unread: Unread { count: unread.min(unread_max), more: unread > unread_max },
            names: Names::default(),
            last_message: self.messages.values().rfind(visible).map(|message| ShownMessage {
                message: message.clone(),
                quote: None,
                shared: None,
                reader: Some(who.clone()),
            }),
            unread_mentions: named.min(unread_max),
            preferences: me.preferences.shown(self.facts.head_seq, read_seq),
            me,
        })
    }
}

fn batch_of(source: &Source, entries: &[Entry]) -> ArchiveBatch {
    ArchiveBatch {
        sources: vec![source.clone()],
        messages: entries.iter().filter_map(|e| e.message.clone()).collect(),
        conversations: entries.iter().map(|e| e.conversation.clone()).collect(),
        members: entries.iter().flat_map(|e| e.members.clone()).collect(),
        reads: entries.iter().filter_map(|e| e.read.clone()).collect(),
        preferences: entries.iter().filter_map(|e| e.preferences.clone()).collect(),
        ..ArchiveBatch::default()
    }
}

async fn write_in_pieces(db: &Database, source: &Source, model: &Model, pieces: &[(usize, usize)], seed: u64) -> Result<(), TestCaseError> {
    let entries = &model.entries;
    let mut written = vec![false; entries.len()];
    let mut pieces: Vec<(usize, usize)> = pieces.iter().map(|(from, len)| (from % entries.len(), *len)).collect();
    pieces.extend((0..entries.len()).rev().filter(|n| n % 2 == 0).map(|n| (n, 2)));
    for (from, len) in pieces {
        let to = (from + len).min(entries.len());
        let mut piece = entries[from..to].to_vec();
        if (seed + from as u64).is_multiple_of(2) {
            piece.reverse();
        }
        written[from..to].fill(true);
        let outcome = db.archive.write_batch(&batch_of(source, &piece)).await.unwrap();
        prop_assert!(outcome.stale.is_empty() && outcome.conflicts.is_empty() && outcome.key_conflicts.is_empty(), "{outcome:?}");
    }
    prop_assert!(written.iter().all(|w| *w));
    for (from, to) in &model.facts.voids {
        sqlx::query("INSERT INTO voids VALUES ($1, $2, $3)")
            .bind(model.facts.id.as_str())
            .bind(i64::try_from(*from).unwrap())
            .bind(i64::try_from(*to).unwrap())
            .execute(&mut db.connection().await)
            .await
            .unwrap();
    }
    Ok(())
}

async fn compare(db: &Database, model: &Model, before: Seq, lowest: Seq, limit: u64) -> Result<(), TestCaseError> {
    let id = &model.facts.id;
    let whole = db.archive.load_conversation(id, limit).await.unwrap().unwrap();
    prop_assert_eq!(&whole.conversation, &model.facts);
    prop_assert_eq!(&whole.members, &model.members.values().cloned().collect::<Vec<_>>());
    let marks: Vec<_> =
        model.marks.iter().filter(|(u, _)| model.members.contains_key(*u)).map(|(u, (seq, at))| (u.clone(), *seq, *at)).collect();
    prop_assert_eq!(&whole.marks, &marks);
    prop_assert_eq!(&whole.uncounted, &model.messages.values().filter(|m| !m.counts()).map(|m| m.seq).collect::<Vec<_>>());
    let named = model.messages.values().flat_map(|m| m.mentions.iter().map(move |who| (who.clone(), m)));
    let mut named: Vec<(UserId, Seq)> = named
        .filter(|(who, m)| model.members.contains_key(who) && m.sender != *who && m.seq > model.marks.get(who).map_or(0, |mark| mark.0))
        .map(|(who, m)| (who, m.seq))
        .collect();
    named.sort_by(|a, b| (a.1, &a.0).cmp(&(b.1, &b.0)));
    prop_assert_eq!(&whole.mentions, &named);
    let all: Vec<Message> = model.messages.values().cloned().collect();
    let last = |messages: Vec<Message>| messages[messages.len().saturating_sub(usize::try_from(limit).unwrap())..].to_vec();
    let first = |messages: Vec<Message>| messages.into_iter().take(usize::try_from(limit).unwrap()).collect::<Vec<_>>();
    prop_assert_eq!(&whole.recent, &last(all.clone()));

    let page = db.archive.messages_before(id, before, lowest, limit).await.unwrap();
    prop_assert_eq!(page, last(all.iter().filter(|m| m.seq < before && m.seq >= lowest).cloned().collect()));
    let page = db.archive.messages_after(id, lowest, before, limit).await.unwrap();
    prop_assert_eq!(page, first(all.iter().filter(|m| m.seq > lowest && m.seq <= before).cloned().collect()));
    let mut changed: Vec<Message> = all.iter().filter(|m| m.rev > before && m.seq >= lowest).cloned().collect();
    changed.sort_by_key(|m| m.rev);
    prop_assert_eq!(db.archive.messages_since_rev(id, before, lowest, limit).await.unwrap(), first(changed));
    prop_assert_eq!(
        db.archive.messages_at(id, &[before, lowest, 1, u64::MAX]).await.unwrap(),
        all.iter().filter(|m| [before, lowest, 1].contains(&m.seq)).cloned().collect::<Vec<_>>()
    );

    // What members have set for themselves is nobody else's business.
    let members: Vec<Member> = model.members.values().map(|m| Member { preferences: Preferences::default(), ..m.clone() }).collect();
    let mut paged = Vec::new();
    loop {
        let page = db.archive.members_page(id, paged.last().map(|m: &Member| &m.user), 2).await.unwrap();
        if page.is_empty() {
            break;
        }
        paged.extend(page);
    }
    prop_assert_eq!(paged, members);
    for name in USERS {
        let who = user(name);
        let unknown = ConversationId::of_group(Uuid::now_v7());
        for unread_max in [0, 2, 1000] {
            let views = db.archive.views_of(&who, &[unknown.clone(), id.clone()], unread_max).await.unwrap();
            prop_assert_eq!(views, model.view(&who, unread_max).into_iter().collect::<Vec<_>>());
        }
        let expected = model.members.get(&who).map(|m| (model.facts.clone(), m.clone()));
        prop_assert_eq!(db.archive.membership(id, &who).await.unwrap(), expected);
        let listed = db.archive.conversation_ids_of(&who).await.unwrap().into_iter().find(|(listed, _)| listed == id);
        prop_assert_eq!(listed.map(|l| l.1), model.members.get(&who).map(|_| model.facts.updated_at));
    }
    Ok(())
}

#[test]
fn any_order_repetition_and_overlap_of_batches_gives_what_redis_had() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let db = runtime.block_on(database());
    let source = runtime.block_on(db.open_shard(0));
    let mut runner = TestRunner::new(Config { cases: 32, failure_persistence: None, ..Config::default() });
    let pieces = prop::collection::vec((any::<usize>(), 1..12_usize), 0..12);
    let strategy = (ops(), any::<bool>(), pieces, any::<u32>(), 0..50_u64, 0..50_u64, 1..8_u64);
    runner
        .run(&strategy, |(ops, all, pieces, seed, before, lowest, limit)| {
            let mut model = Model::new(if all { History::All } else { History::FromJoin });
            ops.iter().for_each(|op| model.apply(op));
            runtime.block_on(async {
                write_in_pieces(&db, &source, &model, &pieces, u64::from(seed)).await?;
                compare(&db, &model, before, lowest, limit).await
            })
        })
        .unwrap();
    // The connections end on the runtime that made them.
    runtime.block_on(db.archive.close());
}

#[tokio::test]
async fn a_conversation_without_its_facts_is_none_for_anybody() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let mut model = Model::new(History::All);
    for op in [Op::Send(0), Op::Join(2), Op::Send(1)] {
        model.apply(&op);
    }
    // The entry that made it stands aside; the rest arrives.
    db.archive.write_batch(&batch_of(&source, &model.entries[1..])).await.unwrap();
    let id = &model.facts.id;
    let eva = user(USERS[2]);
    assert_eq!(db.archive.load_conversation(id, 10).await.unwrap(), None);
    assert_eq!(db.archive.membership(id, &eva).await.unwrap(), None);
    assert_eq!(db.archive.views_of(&eva, std::slice::from_ref(id), 10).await.unwrap(), []);
    assert_eq!(db.archive.conversation_ids_of(&eva).await.unwrap(), []);
    db.archive.write_batch(&batch_of(&source, &model.entries[..1])).await.unwrap();
    assert_eq!(db.archive.load_conversation(id, 10).await.unwrap().unwrap().conversation, model.facts);
}

#[tokio::test]
async fn what_lies_below_a_hole_is_not_taken_for_complete() {
    let db = database().await;
    let source = db.open_shard(0).await;
    let mut model = Model::new(History::All);
    for op in [Op::Send(0), Op::Send(0), Op::Lose(3), Op::Send(1), Op::Send(1), Op::Send(0)] {
        model.apply(&op);
    }
    let id = model.facts.id.clone();
    let recent = async || db.archive.load_conversation(&id, 10).await.unwrap().unwrap().recent.iter().map(|m| m.seq).collect::<Vec<_>>();
    // Seq 7 is missing: it stands aside.
    let mut entries = model.entries.clone();
    entries.retain(|e| e.message.as_ref().is_none_or(|m| m.seq != 7));
    db.archive.write_batch(&batch_of(&source, &entries)).await.unwrap();
    assert_eq!(recent().await, [8]);
    db.archive.write_batch(&batch_of(&source, &model.entries)).await.unwrap();
    // Seqs 3 to 5 are in no table until they are known to be void.
    assert_eq!(recent().await, [6, 7, 8]);
    write_in_pieces(&db, &source, &model, &[], 0).await.unwrap();
    assert_eq!(recent().await, [1, 2, 6, 7, 8]);
}
