//! Numbers, keys and watermarks against a model, through two sets of stores.

use std::collections::HashMap;
use std::sync::Arc;

use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use seqline::actions::change_conversation::change_conversation;
use seqline::actions::make_conversation::{GroupWish, make_group};
use seqline::actions::mark_read::mark_read;
use seqline::actions::read_messages::{Place, page};
use seqline::actions::send_message::{Ack, SendOutcome, SendRequest, send_message};
use seqline::actions::{Stores, read_conversation};
use seqline::domain::change::Command;
use seqline::domain::conversation::History;
use seqline::domain::ids::{ClientKey, ConversationId, UserId};
use seqline::domain::message::Draft;
use seqline::domain::refusal::Refusal;

use crate::harness::{RedisKind, StorePair, on_both};

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn request(sender: &str, conversation: &ConversationId, key: &str, body: &str, peer: Option<&str>) -> SendRequest {
    let client_id = ClientKey::parse(key).unwrap();
    let draft = Draft::text(client_id.clone(), body.into());
    SendRequest {
        sender: user(sender),
        service: false,
        conversation: conversation.clone(),
        peer: peer.map(user),
        client_id,
        content: Ok(draft),
        ack: Ack::Accepted,
    }
}

async fn send(stores: &Arc<Stores>, sender: &str, conversation: &ConversationId, key: &str, body: &str) -> Result<SendOutcome, Refusal> {
    send_message(stores, request(sender, conversation, key, body, None)).await
}

async fn group(stores: &Arc<Stores>, owner: &str, members: &[&str]) -> ConversationId {
    let members = members.iter().map(|m| user(m)).collect();
    let wish = GroupWish { title: None, members, history: History::All, key: None };
    make_group(stores, &user(owner), &wish).await.unwrap().view.conversation.id
}

on_both! {
    async fn a_pair_that_never_met_starts_at_one_whoever_writes_first(pair: StorePair) {
        for round in 0..20 {
            let (ann, bob) = (format!("ann{round}"), format!("bob{round}"));
            let id = ConversationId::of_pair(&user(&ann), &user(&bob)).unwrap();
            assert_eq!(send(&pair.one, &ann, &id, "k", "hi").await.unwrap_err(), Refusal::NotFound, "nobody named a peer");
            let (a, b) = tokio::join!(
                send_message(&pair.one, request(&ann, &id, "a", "hi", Some(&bob))),
                send_message(&pair.two, request(&bob, &id, "b", "ho", Some(&ann))),
            );
            let mut seqs = [a.unwrap().message.seq, b.unwrap().message.seq];
            seqs.sort_unstable();
            assert_eq!(seqs, [1, 2], "round {round}");
            let seen = read_conversation::view(&pair.two, &user(&ann), &id).await.unwrap();
            assert_eq!((seen.conversation.head_seq, seen.conversation.member_count), (2, 2));
            assert_eq!(seen.conversation.peer_of(&user(&ann)), Some(&user(&bob)));
        }
    }

    async fn what_two_say_at_once_is_numbered_without_a_gap(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        let mut sends = tokio::task::JoinSet::new();
        for n in 0..400 {
            let (stores, sender) = if n % 2 == 0 { (pair.one.clone(), "ann") } else { (pair.two.clone(), "bob") };
            let id = id.clone();
            sends.spawn(async move { send(&stores, sender, &id, &format!("k{n}"), &format!("m{n}")).await.unwrap().message.seq });
        }
        let mut seqs = sends.join_all().await;
        seqs.sort_unstable();
        assert_eq!(seqs, (1..=400).collect::<Vec<_>>());
        let page = page(&pair.two, &user("ann"), &id, Place::Before(201), 200).await.unwrap();
        assert_eq!(page.messages.iter().map(|m| m.seq).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
        assert!(!page.has_more_before && page.has_more_after);
    }

    async fn one_key_is_one_message_and_other_content_is_a_conflict(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        for round in 0..50 {
            let key = format!("k{round}");
            let (x, y) = tokio::join!(send(&pair.one, "ann", &id, &key, "x"), send(&pair.two, "ann", &id, &key, "y"));
            let outcomes = [x, y];
            let won = outcomes.iter().flatten().next().unwrap();
            assert_eq!(won.message.seq, 2 * round + 1);
            assert!(outcomes.contains(&Err(Refusal::IdempotencyConflict)), "round {round}");
            let again = send(&pair.two, "ann", &id, &key, &won.message.body).await.unwrap();
            assert!(again.replayed && again.message.id == won.message.id);
            assert!(!send(&pair.one, "bob", &id, &key, "x").await.unwrap().replayed, "another sender's key is another key");
            // Bob's message stands between: the next round's number counts on it.
            let seen = read_conversation::view(&pair.one, &user("ann"), &id).await.unwrap();
            assert_eq!(seen.conversation.head_seq, 2 * (round + 1));
        }
    }

    async fn who_is_gone_still_learns_that_the_message_stands(pair: StorePair) {
        let id = group(&pair.one, "ann", &["bob"]).await;
        let said = send(&pair.one, "bob", &id, "k", "bye").await.unwrap();
        change_conversation(&pair.two, &user("ann"), &id, &Command::Remove(user("bob"))).await.unwrap();
        let again = send(&pair.one, "bob", &id, "k", "bye").await.unwrap();
        assert!(again.replayed && again.message.id == said.message.id);
        assert_eq!(send(&pair.one, "bob", &id, "k2", "more").await.unwrap_err(), Refusal::NotFound);
        assert_eq!(page(&pair.two, &user("bob"), &id, Place::Latest, 10).await.unwrap_err(), Refusal::NotFound);
    }
}

/// What may be done in the model.
#[derive(Clone, Debug)]
enum Op {
    Send { by: u8, key: u8, body: u8 },
    Read { by: u8, seq: u64 },
    Invite { by: u8, whom: u8 },
    Remove { by: u8, whom: u8 },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..4_u8, 0..12_u8, 0..2_u8).prop_map(|(by, key, body)| Op::Send { by, key, body }),
        2 => (0..4_u8, 0..40_u64).prop_map(|(by, seq)| Op::Read { by, seq }),
        1 => (0..4_u8, 0..4_u8).prop_map(|(by, whom)| Op::Invite { by, whom }),
        1 => (0..4_u8, 0..4_u8).prop_map(|(by, whom)| Op::Remove { by, whom }),
    ]
}

/// The rules once more, as plainly as they can be said.
#[derive(Default)]
struct Model {
    head: u64,
    rev_floor: u64,
    /// In order of joining; the first is the owner unless he left.
    members: Vec<u8>,
    owner: u8,
    keys: HashMap<(u8, u8), (u64, u8)>,
    marks: HashMap<u8, u64>,
    timeline: Vec<u64>,
}

impl Model {
    fn unread(&self, who: u8) -> u64 {
        let read = self.marks[&who];
        (read + 1..=self.head).filter(|seq| !self.timeline.contains(seq)).count() as u64
    }
}

#[test]
fn random_histories_agree_with_the_model() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let pair = runtime.block_on(StorePair::with(RedisKind::Single, &[]));
    let mut runner = TestRunner::new(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() });
    runner
        .run(&proptest::collection::vec((op(), any::<bool>()), 1..60), |ops| {
            runtime.block_on(play(&pair, ops));
            Ok(())
        })
        .unwrap();
}

async fn play(pair: &StorePair, ops: Vec<(Op, bool)>) {
    let name = |n: u8| format!("u{n}");
    let id = group(&pair.one, "u0", &["u1", "u2"]).await;
    let mut model = Model { members: vec![0, 1, 2], owner: 0, ..Model::default() };
    model.marks = (0..3).map(|n| (n, 0)).collect();
    for (op, first) in ops {
        if model.members.is_empty() {
            break;
        }
        let stores = if first { &pair.one } else { &pair.two };
        match op {
            Op::Send { by, key, body } => {
                let outcome = send(stores, &name(by), &id, &format!("k{key}"), &format!("b{body}")).await;
                match (model.keys.get(&(by, key)), model.members.contains(&by)) {
                    (Some((seq, b)), _) if *b == body => assert_eq!(outcome.map(|o| (o.replayed, o.message.seq)), Ok((true, *seq))),
                    (Some(_), _) => assert_eq!(outcome.unwrap_err(), Refusal::IdempotencyConflict),
                    (None, false) => assert_eq!(outcome.unwrap_err(), Refusal::NotFound),
                    (None, true) => {
                        let sent = outcome.unwrap();
                        assert_eq!((sent.replayed, sent.message.seq), (false, model.head + 1));
                        assert!(sent.message.rev > model.rev_floor);
                        model.rev_floor = sent.message.rev;
                        model.head += 1;
                        model.keys.insert((by, key), (model.head, body));
                        model.marks.insert(by, model.head);
                    }
                }
            }
            Op::Read { by, seq } => {
                let outcome = mark_read(stores, &user(&name(by)), &id, seq, |ms| ms.to_string()).await;
                if model.members.contains(&by) {
                    let mark = model.marks[&by].max(seq.min(model.head));
                    model.marks.insert(by, mark);
                    let at = outcome.unwrap();
                    assert_eq!((at.read_seq, at.unread.count), (mark, model.unread(by)));
                } else {
                    assert_eq!(outcome.unwrap_err(), Refusal::NotFound);
                }
            }
            Op::Invite { by, whom } => {
                let outcome = change_conversation(stores, &user(&name(by)), &id, &Command::Invite(user(&name(whom)))).await;
                if !model.members.contains(&by) {
                    assert_eq!(outcome.unwrap_err(), Refusal::NotFound);
                } else if !model.members.contains(&whom) {
                    outcome.unwrap();
                    model.head += 1;
                    model.timeline.push(model.head);
                    model.members.push(whom);
                    model.marks.insert(whom, model.head);
                }
            }
            Op::Remove { by, whom } => {
                let outcome = change_conversation(stores, &user(&name(by)), &id, &Command::Remove(user(&name(whom)))).await;
                if !model.members.contains(&by) {
                    assert_eq!(outcome.unwrap_err(), Refusal::NotFound);
                } else if by != whom && by != model.owner {
                    assert!(matches!(outcome, Err(Refusal::Forbidden(_))), "{outcome:?}");
                } else if !model.members.contains(&whom) {
                    assert_eq!(outcome.unwrap_err(), Refusal::NotFound);
                } else {
                    outcome.unwrap();
                    model.head += 1;
                    model.timeline.push(model.head);
                    model.members.retain(|m| *m != whom);
                    if whom == model.owner && !model.members.is_empty() {
                        // Founders joined together and are told apart by name; later ones by their rev.
                        model.owner = model.members[0];
                        model.head += 1;
                        model.timeline.push(model.head);
                    }
                }
            }
        }
    }
    for member in &model.members {
        let seen = read_conversation::view(&pair.two, &user(&name(*member)), &id).await.unwrap();
        assert_eq!(seen.conversation.head_seq, model.head);
        assert_eq!(seen.unread.count, model.unread(*member), "u{member}");
        assert_eq!(seen.conversation.owner, Some(user(&name(model.owner))));
        let seqs: Vec<u64> =
            page(&pair.one, &user(&name(*member)), &id, Place::Latest, 200).await.unwrap().messages.iter().map(|m| m.seq).collect();
        assert_eq!(seqs, (1..=model.head).collect::<Vec<_>>());
    }
}
