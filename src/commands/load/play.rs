//! Plays a plan: makes users and conversations, opens the streams, sends, waits for what is on its way, and judges.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use indicatif::{ProgressBar, ProgressStyle};
use uuid::Uuid;

use super::LoadError;
use super::args::LoadArgs;
use super::audience::Audience;
use super::gateways::{Gateways, Signer, User};
use super::memory;
use super::record::{Record, Room, hold};
use super::report::{Memory, Report, Streams};
use super::scenarios::{Plan, RoomPlan};
use super::traffic;
use super::verdict::{History, Line, Verdict, judge};
use crate::domain::ids::{ConversationId, UserId};

/// Conversations whose histories are read at the same time.
const HISTORIES_AT_ONCE: usize = 8;

/// Everything that senders and readers share.
#[derive(Debug)]
pub struct Stage {
    /// Who takes part, by place.
    pub users: Vec<User>,
    /// What they write to.
    pub record: Record,
    /// Where they send and listen.
    pub gateways: Gateways,
}

/// Plays the plan against the gateways. `pids` are processes of gateways on this machine whose memory is to be reported.
///
/// # Errors
/// When the run could not take place: tokens or group could not be made, or the history not be read.
pub async fn play(args: &LoadArgs, plan: &Plan, gateways: Gateways, signer: &Signer, pids: &[u32]) -> Result<Report, LoadError> {
    memory::check_open_files(plan.listeners.len())?;
    let run = Uuid::now_v7().simple().to_string();
    // The end of a UUIDv7 is random; its beginning is the time.
    let prefix = &run[run.len() - 12..];
    let users: Vec<User> = plan.users.iter().map(|name| signer.user(&format!("load-{prefix}-{name}"))).collect::<Result<_, _>>()?;
    let rooms = make_rooms(plan, &users, &gateways).await?;
    let record = Record::new(rooms, args.late_ms.saturating_mul(1_000))?;
    let stage = Arc::new(Stage { users, record, gateways });

    let mut verdict = Verdict::default();
    let before = resident(pids)?;
    let audience = Audience::open(&stage, &plan.listeners, plan.habit).await;
    audience.wait_until_greeted(&mut verdict).await?;
    if plan.hold_seconds > 0 {
        hold_streams(plan.hold_seconds).await;
        audience.count_closed(&mut verdict);
    }
    let after = resident(pids)?;

    let began_us = stage.record.now_us();
    traffic::send(&stage, &plan.traffic).await;
    let sent_us = stage.record.now_us();

    let histories = read_histories(&stage).await?;
    audience.wait_for_rest(&stage, &histories, Duration::from_secs(args.drain_seconds)).await;
    let diaries = audience.close().await;

    judge_all(&mut verdict, &stage, &diaries, &histories);
    let streams = Streams::sum(diaries.iter().map(|(_, diary)| diary));
    let memory = before.zip(after).map(|(before, after)| Memory::of(before, after, plan.listeners.len()));
    Ok(Report::new(plan, &stage, (began_us, sent_us), streams, memory, verdict.close()))
}

fn resident(pids: &[u32]) -> Result<Option<u64>, LoadError> {
    if pids.is_empty() { Ok(None) } else { memory::resident_bytes(pids).map(Some) }
}

async fn make_rooms(plan: &Plan, users: &[User], gateways: &Gateways) -> Result<Vec<Room>, LoadError> {
    let mut rooms = Vec::with_capacity(plan.rooms.len());
    for room in &plan.rooms {
        let (id, members) = match *room {
            RoomPlan::GroupOfAll => {
                let others: Vec<&str> = users[1..].iter().map(|user| user.id.as_str()).collect();
                let title: String = plan.name.chars().take(80).collect();
                (gateways.make_group(&users[0], &others, &title).await?, (0..users.len()).collect())
            }
            // Nobody makes a single conversation: the first send does.
            RoomPlan::Pair(a, b) => (pair_id(&users[a].id, &users[b].id)?, vec![a, b]),
        };
        rooms.push(Room { id, members, ledger: Mutex::default() });
    }
    Ok(rooms)
}

fn pair_id(a: &str, b: &str) -> Result<String, LoadError> {
    let parsed = |id: &str| UserId::parse(id).map_err(|_| LoadError::Setup(format!("{id:?} cannot be a user id")));
    let id = ConversationId::of_pair(&parsed(a)?, &parsed(b)?).map_err(|_| LoadError::Setup("a pair of one user".into()))?;
    Ok(id.to_string())
}

async fn hold_streams(seconds: u64) {
    let bar = progress(seconds, "{msg:>9} [{bar:40}] {pos}/{len} s", "holding");
    for _ in 0..seconds {
        tokio::time::sleep(Duration::from_secs(1)).await;
        bar.inc(1);
    }
    bar.finish_and_clear();
}

async fn read_histories(stage: &Arc<Stage>) -> Result<Vec<History>, LoadError> {
    let bar = progress(stage.record.rooms.len() as u64, "{msg:>9} [{bar:40}] {pos}/{len} conversations", "reading");
    let histories = stream::iter(&stage.record.rooms)
        .map(|room| async {
            let history = stage.gateways.history(&stage.users[room.members[0]], &room.id, 0).await;
            bar.inc(1);
            history
        })
        .buffered(HISTORIES_AT_ONCE)
        .try_collect()
        .await;
    bar.finish_and_clear();
    histories
}

fn judge_all(verdict: &mut Verdict, stage: &Stage, diaries: &[(usize, super::reader::Diary)], histories: &[History]) {
    let by_user: std::collections::HashMap<usize, &super::reader::Diary> = diaries.iter().map(|(user, diary)| (*user, diary)).collect();
    let nothing = Line::default();
    for (at, (room, history)) in stage.record.rooms.iter().zip(histories).enumerate() {
        let listening = room.members.iter().filter_map(|member| {
            let line = by_user.get(member)?.lines.get(&at).unwrap_or(&nothing);
            Some((stage.users[*member].id.as_str(), line))
        });
        let lines: Vec<(&str, &Line)> = listening.collect();
        judge(verdict, &room.id, &hold(&room.ledger), history, &lines);
    }
    let (unsent, why) = &*hold(&stage.record.unsent);
    verdict.count_unsent(*unsent, why.as_deref());
    verdict.count_resequenced(stage.record.resequenced.load(std::sync::atomic::Ordering::Relaxed));
}

/// A bar on the terminal; nothing at all where there is none.
pub fn progress(len: u64, template: &str, what: &'static str) -> ProgressBar {
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(len).with_style(style).with_message(what)
}
