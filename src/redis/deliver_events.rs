//! Appends pointers to users' logs, a run of one shard's outbox at a time. See `lua/deliver_events.lua`.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;

use super::error::RedisError;
use super::event_log::{LogBounds, entry_id, fresh_nonce, pointer_text};
use super::keys::{Keys, delivered_mark};
use super::link::{Link, Script};
use super::outbox::OutboxId;
use super::reply::Reply;
use super::stored_form::Unreadable;
use crate::domain::event::Pointer;
use crate::domain::ids::{Millis, PartitionId, ShardId, UserId};
use crate::domain::position::{EntryId, Position};

/// The script.
pub static SCRIPT: Script = Script { name: "deliver_events", source: include_str!("../../lua/deliver_events.lua") };

/// Appends that one call of the script makes at most, except that one outbox entry is never split within a partition.
const APPENDS_MAX: usize = 500;
/// Calls that are under way at a time.
const CALLS_AT_ONCE: usize = 8;

/// What becomes of the conversation in the recipients' lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// It moves up, or comes in.
    Touch,
    /// It goes: the recipient is no member any more.
    Remove,
    /// It stays where it is.
    Leave,
}

/// One event for some users. All deliveries of one outbox entry must be in the same call: the entry counts as delivered after it.
#[derive(Clone, Debug, PartialEq)]
pub struct Delivery {
    /// The outbox entry it was made from; deliveries stand in the order of these.
    pub outbox_id: OutboxId,
    /// What goes onto the logs.
    pub pointer: Pointer,
    /// Whose logs.
    pub recipients: Vec<UserId>,
    /// What becomes of the conversation in their lists.
    pub index: IndexChange,
}

/// An entry that now stands on a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Which of the deliveries, from 0.
    pub delivery: usize,
    /// Whose log.
    pub user: UserId,
    /// Where on it.
    pub position: Position,
    /// The entry before it.
    pub previous: EntryId,
    /// Gateways that want to know.
    pub gateways: Vec<String>,
}

/// What a run of deliveries came to.
#[derive(Clone, Debug, Default)]
pub struct DeliveryOutcome {
    /// What was appended now, per user in order. What an earlier call had appended is missing here.
    pub delivered: Vec<Delivered>,
    /// Partitions of which at least one call failed: what was meant for them must be delivered again, as it was, before anything later.
    pub failed_partitions: Vec<PartitionId>,
    /// Why the first of them failed.
    pub error: Option<RedisError>,
    /// Users whose log was lost or of a wrong type and has begun again: their readers get `resync`.
    pub rebuilt: Vec<UserId>,
    /// Users whose log could not be written at all; the others went on.
    pub failed_users: Vec<UserId>,
}

/// The deliveries of one outbox entry into one partition: never split.
struct Unit {
    last: OutboxId,
    /// User and the deliveries for that user, in order.
    users: BTreeMap<UserId, Vec<usize>>,
}

/// One call: some partitions, each with a run of units merged into one.
type Call = Vec<(PartitionId, Unit)>;

/// Delivers in order. Entries at or below the partition's mark are passed over, so that a call may be repeated.
pub async fn deliver_events(
    link: &Link,
    keys: &Keys,
    shard: ShardId,
    deliveries: &[Delivery],
    now: Millis,
    bounds: LogBounds,
) -> DeliveryOutcome {
    let chains = plan(keys, deliveries, link.is_cluster());
    let mut running = futures_util::stream::iter(chains.into_iter().map(|chain| async move {
        let mut outcome = DeliveryOutcome::default();
        let mut chain = chain.into_iter();
        while let Some(call) = chain.next() {
            let partitions: Vec<PartitionId> = call.iter().map(|(partition, _)| *partition).collect();
            if let Err(error) = run(link, keys, shard, deliveries, &call, now, bounds, &mut outcome).await {
                outcome.error = Some(error);
                outcome.failed_partitions = partitions.into_iter().chain(chain.flatten().map(|(partition, _)| partition)).collect();
                break;
            }
        }
        outcome
    }))
    .buffered(CALLS_AT_ONCE);
    let mut whole = DeliveryOutcome::default();
    while let Some(part) = running.next().await {
        whole.delivered.extend(part.delivered);
        whole.rebuilt.extend(part.rebuilt);
        whole.failed_users.extend(part.failed_users);
        whole.failed_partitions.extend(part.failed_partitions);
        whole.error = whole.error.or(part.error);
    }
    whole.failed_partitions.sort_unstable();
    whole.failed_partitions.dedup();
    whole
}

/// Cuts the deliveries into chains of calls. Calls of one chain follow each other, chains do not wait for each other; a partition is in one
/// chain only.
fn plan(keys: &Keys, deliveries: &[Delivery], one_partition_a_call: bool) -> Vec<Vec<Call>> {
    let mut partitions: BTreeMap<PartitionId, Vec<Unit>> = BTreeMap::new();
    for (number, delivery) in deliveries.iter().enumerate() {
        for user in &delivery.recipients {
            let units = partitions.entry(keys.partition_of(user)).or_default();
            if units.last().is_none_or(|unit| unit.last != delivery.outbox_id) {
                units.push(Unit { last: delivery.outbox_id, users: BTreeMap::new() });
            }
            if let Some(unit) = units.last_mut() {
                unit.users.entry(user.clone()).or_default().push(number);
            }
        }
    }
    let mut chains: Vec<Vec<Call>> = Vec::new();
    let (mut packed, mut packed_appends): (Call, usize) = (Vec::new(), 0);
    for (partition, units) in partitions {
        let mut runs = merge(units);
        if one_partition_a_call || runs.len() > 1 {
            chains.push(runs.into_iter().map(|(run, _)| vec![(partition, run)]).collect());
        } else if let Some((run, appends)) = runs.pop() {
            if packed_appends + appends > APPENDS_MAX && !packed.is_empty() {
                chains.push(vec![std::mem::take(&mut packed)]);
                packed_appends = 0;
            }
            packed.push((partition, run));
            packed_appends += appends;
        }
    }
    if !packed.is_empty() {
        chains.push(vec![packed]);
    }
    chains
}

/// Joins neighbouring units into runs of at most [`APPENDS_MAX`] appends.
fn merge(units: Vec<Unit>) -> Vec<(Unit, usize)> {
    let mut runs: Vec<(Unit, usize)> = Vec::new();
    for unit in units {
        let appends: usize = unit.users.values().map(Vec::len).sum();
        match runs.last_mut() {
            Some((run, so_far)) if *so_far + appends <= APPENDS_MAX => {
                run.last = unit.last;
                *so_far += appends;
                for (user, numbers) in unit.users {
                    run.users.entry(user).or_default().extend(numbers);
                }
            }
            _ => runs.push((unit, appends)),
        }
    }
    runs
}

#[allow(clippy::too_many_arguments)]
async fn run(
    link: &Link,
    keys: &Keys,
    shard: ShardId,
    deliveries: &[Delivery],
    call: &Call,
    now: Millis,
    bounds: LogBounds,
    outcome: &mut DeliveryOutcome,
) -> Result<(), RedisError> {
    let mut names: Vec<String> = call.iter().map(|(partition, _)| delivered_mark(*partition, shard)).collect();
    let mut args: Vec<Bytes> = Vec::new();
    let text = |text: String| Bytes::from(text);
    // Only what this call delivers is sent, under numbers of its own from 1.
    let mut numbers: BTreeMap<usize, usize> = call.iter().flat_map(|(_, unit)| unit.users.values().flatten()).map(|d| (*d, 0)).collect();
    for (own, number) in numbers.values_mut().enumerate() {
        *number = own + 1;
    }
    let oldest = now.saturating_sub(i64::try_from(bounds.age_max_ms).unwrap_or(i64::MAX)).max(0);
    args.push(text(now.to_string()));
    args.push(text(bounds.entries_max.to_string()));
    args.push(text(oldest.to_string()));
    args.push(text(fresh_nonce()));
    args.push(text(call.len().to_string()));
    args.push(text(numbers.len().to_string()));
    args.extend(call.iter().map(|(_, unit)| text(unit.last.to_string())));
    for delivery in numbers.keys().filter_map(|d| deliveries.get(*d)) {
        args.push(text(delivery.outbox_id.epoch.to_string()));
        args.push(text(delivery.outbox_id.n.to_string()));
        args.push(text(pointer_text(&delivery.pointer)));
        args.push(text(delivery.pointer.data.clone().unwrap_or_default()));
        args.push(text(delivery.pointer.conversation.to_string()));
        args.push(Bytes::from_static(match delivery.index {
            IndexChange::Touch => b"touch",
            IndexChange::Remove => b"remove",
            IndexChange::Leave => b"leave",
        }));
    }
    let mut users: Vec<&UserId> = Vec::new();
    for (mark, (_, unit)) in call.iter().enumerate() {
        for (user, picks) in &unit.users {
            let of = keys.user(user);
            names.extend([of.log, of.log_info, of.index]);
            args.push(text((mark + 1).to_string()));
            args.push(text(picks.len().to_string()));
            args.extend(picks.iter().map(|d| text(numbers[d].to_string())));
            users.push(user);
        }
    }
    let reply = link.eval(&SCRIPT, names, args).await?;
    let mut items = reply.items()?;
    if items.str()? != "delivered" {
        return Err(Unreadable("deliver_events").into());
    }
    let sent: Vec<usize> = numbers.into_keys().collect();
    for user in users {
        read_user(items.list()?, user, &sent, outcome)?;
    }
    Ok(())
}

fn read_user(reply: &[Reply], user: &UserId, sent: &[usize], outcome: &mut DeliveryOutcome) -> Result<(), Unreadable> {
    let Some((epoch, rest)) = reply.split_first() else { return Ok(()) };
    let epoch = epoch.as_str()?;
    if epoch == "failed" {
        tracing::error!(reason = rest.first().and_then(|r| r.as_str().ok()).unwrap_or(""), "a user's log could not be written");
        outcome.failed_users.push(user.clone());
        return Ok(());
    }
    let (Some(gateways), Some(rebuilt)) = (rest.first(), rest.get(1)) else { return Err(Unreadable("deliver_events")) };
    let gateways: Vec<String> = gateways.as_str()?.split(' ').filter(|g| !g.is_empty()).map(str::to_owned).collect();
    if rebuilt.as_bool()? {
        outcome.rebuilt.push(user.clone());
    }
    for entry in rest[2..].chunks_exact(3) {
        let number = usize::try_from(entry[0].as_u64()?).map_err(|_| Unreadable("delivery number"))?;
        outcome.delivered.push(Delivered {
            delivery: *number.checked_sub(1).and_then(|n| sent.get(n)).ok_or(Unreadable("delivery number"))?,
            user: user.clone(),
            position: Position { epoch: Some(epoch.to_owned()), entry: entry_id(entry[1].as_str()?)? },
            previous: entry_id(entry[2].as_str()?)?,
            gateways: gateways.clone(),
        });
    }
    Ok(())
}
