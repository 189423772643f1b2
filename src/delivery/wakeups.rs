//! Reads this gateway's wake-ups.
//!
//! They are hints. A reader of them that has fallen silent (a stream that went back with its server, so that new entries lie below the
//! place that was read last) is found by a probe: the gateway sends itself an empty one now and then, and goes back when the probe's id
//! lies below.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

use super::frames;
use super::open_streams::OpenStreams;
use crate::actions::Stores;
use crate::actions::show_shares::{look_up, remembered};
use crate::domain::event::EventType;
use crate::domain::message::Share;
use crate::domain::position::EntryId;
use crate::domain::quote::ShownMessage;
use crate::redis::stored_form::parse_message_json;
use crate::redis::wake_gateway::{Wake, WakeUp, probe_wakeups, read_wakeups};

/// Milliseconds that one read waits.
const WAIT_MS: u64 = 2_000;
/// Between probes.
const PROBE_EVERY: Duration = Duration::from_secs(10);
/// Before a failed read is repeated.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// The loop; ends when the gateway stops and no stream is left.
pub(super) async fn run(hub: Arc<OpenStreams>) {
    let probed_ms = AtomicU64::new(0);
    let probing = async {
        loop {
            tokio::time::sleep(PROBE_EVERY).await;
            if let Ok(id) = probe_wakeups(&hub.stores.link, &hub.gateway).await {
                probed_ms.store(id.ms, Ordering::Relaxed);
            }
        }
    };
    let leaving = async {
        hub.stop().cancelled().await;
        hub.emptied().await;
    };
    tokio::select! {
        () = read(&hub, &probed_ms) => {}
        () = probing => {}
        () = leaving => {}
    }
}

/// A probe this much older than the place tells of a stream that went back; less is only another wake-up that was read after the probe.
const BACK_MS: u64 = 5_000;

async fn read(hub: &Arc<OpenStreams>, probed_ms: &AtomicU64) {
    let mut place = EntryId::default();
    loop {
        let mut reader = match hub.stores.link.blocking_reader().await {
            Ok(reader) => reader,
            Err(error) => {
                tracing::warn!(%error, "no connection for wake-ups; streams follow by comparison with their logs");
                tokio::time::sleep(RETRY_AFTER).await;
                continue;
            }
        };
        loop {
            match read_wakeups(&mut reader, &hub.gateway, place, WAIT_MS).await {
                Ok((last, wakes)) => {
                    place = last;
                    for wake in &wakes {
                        match wake {
                            WakeUp::Logged(wake) => heed(hub, wake),
                            WakeUp::Live(wake) => hub.tell(wake),
                            WakeUp::Ended(users) => hub.end_of(users),
                        }
                    }
                    let probed = probed_ms.swap(0, Ordering::Relaxed);
                    if probed > 0 && probed + BACK_MS < place.ms {
                        tracing::warn!("the wake-ups of this gateway went back in time; reading them from there");
                        place = EntryId { ms: probed.saturating_sub(1), n: 0 };
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "wake-ups cannot be read; streams follow by comparison with their logs");
                    tokio::time::sleep(RETRY_AFTER).await;
                    break;
                }
            }
        }
    }
}

/// Takes a wake-up. What its message shares is looked up first, once for all streams here, and beside the loop, so that nobody else is held
/// up; whoever is woken by something later meanwhile reads both from the log.
fn heed(hub: &Arc<OpenStreams>, wake: &Wake) {
    match share_in(wake).filter(|share| remembered(&hub.stores, share).is_none()) {
        None => hub.wake(wake),
        Some(share) => {
            let (hub, wake) = (Arc::clone(hub), wake.clone());
            tokio::spawn(async move {
                look_up(&hub.stores, share).await;
                hub.wake(&wake);
            });
        }
    }
}

fn share_in(wake: &Wake) -> Option<Share> {
    // As it is stored; a body that holds these letters only costs a look.
    let json = wake.message.as_ref().filter(|json| json.contains("\"sh\":"))?;
    parse_message_json(&wake.pointer.conversation, wake.pointer.seq, wake.pointer.rev, json).ok()?.share
}

/// The shared part of a wake-up's frame; `None` when its event has to be read from the log.
pub(super) fn shared_end(stores: &Stores, wake: &Wake) -> Option<Bytes> {
    let pointer = &wake.pointer;
    let tail = match (&wake.message, &pointer.data) {
        (Some(json), None) if pointer.kind == EventType::MessageCreated => {
            let message = match parse_message_json(&pointer.conversation, pointer.seq, pointer.rev, json) {
                Ok(message) => message,
                Err(error) => {
                    tracing::warn!(%error, "a wake-up's message cannot be read; its readers take it from the log");
                    return None;
                }
            };
            if message.reply_to.is_some() {
                // What it answers is looked up for each reader.
                return None;
            }
            let shared = match &message.share {
                Some(share) => remembered(stores, share)?,
                None => None,
            };
            let shown = ShownMessage { shared, ..ShownMessage::plain(message) };
            crate::contract::event::event_tail(pointer, &crate::contract::event::message_data(&shown))
        }
        (None, Some(facts)) if carries_its_facts(pointer.kind) => frames::tail_of_facts(pointer, facts),
        _ => return None,
    };
    Some(frames::event_end(&tail))
}

/// Whether an event is shown from its pointer's facts alone.
fn carries_its_facts(kind: EventType) -> bool {
    !matches!(
        kind,
        EventType::ConversationCreated
            | EventType::MessageCreated
            | EventType::MessageEdited
            | EventType::MessageDeleted
            | EventType::MessageResequenced
            | EventType::Resync
    )
}
