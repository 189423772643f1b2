//! What a run tells: a page for people, or the same as JSON.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;

use serde::Serialize;

use super::play::Stage;
use super::reader::Diary;
use super::record::Percentiles;
use super::scenarios::Plan;
use super::verdict::Verdict;

/// Counts of all streams together.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Streams {
    /// Readers.
    pub readers: u64,
    /// Streams opened, the first ones included.
    pub opened: u64,
    /// Openings refused or failed.
    pub refused: u64,
    /// Streams that broke.
    pub broke: u64,
    /// Streams that a gateway ended with a word.
    pub dismissed: u64,
    /// `resync` events by reason.
    pub resyncs: BTreeMap<String, u64>,
    /// Comment lines received.
    pub heartbeats: u64,
}

impl Streams {
    /// Adds up.
    pub fn sum<'a>(diaries: impl Iterator<Item = &'a Diary>) -> Self {
        let mut sum = Self::default();
        for diary in diaries {
            sum.readers += 1;
            sum.opened += diary.opened;
            sum.refused += diary.refused;
            sum.broke += diary.broke;
            sum.dismissed += diary.dismissed;
            sum.heartbeats += diary.heartbeats;
            for (reason, count) in &diary.resyncs {
                *sum.resyncs.entry(reason.clone()).or_default() += count;
            }
        }
        sum
    }
}

/// Resident memory of the gateways.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Bytes before the streams were opened.
    pub before: u64,
    /// Bytes while they were held.
    pub held: u64,
    /// The difference for one stream; negative when memory was given back meanwhile.
    pub bytes_per_stream: i64,
}

impl Memory {
    /// Compares.
    #[must_use]
    pub fn of(before: u64, held: u64, streams: usize) -> Self {
        let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        let streams = i64::try_from(streams).unwrap_or(i64::MAX).max(1);
        Self { before, held, bytes_per_stream: (signed(held) - signed(before)) / streams }
    }
}

/// The outcome of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// What was played.
    pub scenario: String,
    /// Gateways used.
    pub gateways: usize,
    /// Users made up.
    pub users: usize,
    /// Conversations.
    pub conversations: usize,
    /// Seconds from the first send to the end of the last.
    pub seconds: f64,
    /// Messages taken.
    pub taken: u64,
    /// Messages whose answer was a replay of an earlier try.
    pub replayed: u64,
    /// Tries after the first.
    pub retries: u64,
    /// Messages answered with a lower level than asked for.
    pub below_ack: u64,
    /// Most that a send began after its time, ms: the load generator or the gateways did not keep up.
    pub behind_ms_max: u64,
    /// Sends a second.
    pub sends_per_second: f64,
    /// Messages that reached a reader.
    pub deliveries: u64,
    /// Deliveries a second, up to the last one.
    pub deliveries_per_second: f64,
    /// From the first try of a send to its answer.
    pub send: Percentiles,
    /// From that answer to a connected reader's receipt; 0 where the stream was faster.
    pub deliver: Percentiles,
    /// Streams.
    pub streams: Streams,
    /// Memory of the gateways, when their process ids were named.
    pub memory: Option<Memory>,
    /// The verdict.
    pub verdict: Verdict,
}

impl Report {
    /// Reads off the record; `sending_us` is when the first send began and the last had ended.
    #[must_use]
    pub fn new(plan: &Plan, stage: &Stage, sending_us: (u64, u64), streams: Streams, memory: Option<Memory>, verdict: Verdict) -> Self {
        let record = &stage.record;
        let (taken, deliveries) = (record.taken.load(Ordering::Relaxed), record.shown.load(Ordering::Relaxed));
        let (began_us, sent_us) = sending_us;
        let last_us = record.last_shown_us.load(Ordering::Relaxed).max(sent_us);
        Self {
            scenario: plan.name.clone(),
            gateways: stage.gateways.count(),
            users: stage.users.len(),
            conversations: record.rooms.len(),
            seconds: seconds(sent_us - began_us),
            taken,
            replayed: record.replayed.load(Ordering::Relaxed),
            retries: stage.gateways.retries.load(Ordering::Relaxed),
            below_ack: record.below.load(Ordering::Relaxed),
            behind_ms_max: record.behind_us.load(Ordering::Relaxed) / 1_000,
            sends_per_second: rate(taken, sent_us - began_us),
            deliveries,
            deliveries_per_second: rate(deliveries, last_us - began_us),
            send: record.sends.percentiles(),
            deliver: record.deliveries.percentiles(),
            streams,
            memory,
            verdict,
        }
    }
}

#[allow(clippy::cast_precision_loss)] // A report is rounded anyway.
fn seconds(us: u64) -> f64 {
    us as f64 / 1_000_000.0
}

#[allow(clippy::cast_precision_loss)]
fn rate(count: u64, us: u64) -> f64 {
    if us == 0 { 0.0 } else { (count as f64 / seconds(us) * 10.0).round() / 10.0 }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} users in {}, {} streaming, over {}",
            self.scenario,
            self.users,
            counted(self.conversations, "conversation"),
            self.streams.readers,
            counted(self.gateways, "gateway")
        )?;
        writeln!(f, "  sent        {} in {:.1} s, {:.1} a second", self.taken, self.seconds, self.sends_per_second)?;
        writeln!(f, "  delivered   {}, {:.1} a second", self.deliveries, self.deliveries_per_second)?;
        writeln!(f, "  send        {}", self.send)?;
        writeln!(f, "  deliver     {}   (from the answer to the sender)", self.deliver)?;
        if self.retries + self.replayed + self.below_ack > 0 {
            writeln!(
                f,
                "  tries       {} again, {} answered as a replay, {} below the level asked for",
                self.retries, self.replayed, self.below_ack
            )?;
        }
        if self.behind_ms_max > 500 {
            writeln!(f, "  behind      a send began up to {} ms after its time", self.behind_ms_max)?;
        }
        let Streams { opened, refused, broke, dismissed, resyncs, heartbeats, .. } = &self.streams;
        write!(
            f,
            "  streams     {opened} opened, {refused} refused, {broke} broken, {dismissed} ended by a gateway, {heartbeats} heartbeats"
        )?;
        for (reason, count) in resyncs {
            write!(f, ", {count} resync ({reason})")?;
        }
        writeln!(f)?;
        if let Some(memory) = &self.memory {
            write!(f, "  memory      gateways: {} MiB before the streams, {} MiB with them", memory.before >> 20, memory.held >> 20)?;
            // Elsewhere buffers of the first requests weigh more than the streams.
            if self.scenario == "idle" {
                write!(f, ", {} bytes a stream", memory.bytes_per_stream)?;
            }
            writeln!(f)?;
        }
        let v = &self.verdict;
        write!(
            f,
            "  verdict     {}: {} lost, {} doubled, {} out of order, {} late",
            if v.good { "good" } else { "BAD" },
            v.lost,
            v.doubled,
            v.out_of_order,
            v.late
        )?;
        if v.unsent + v.broken_streams > 0 {
            write!(f, "; {} not taken, {} streams not open", v.unsent, v.broken_streams)?;
        }
        for example in &v.examples {
            write!(f, "\n    - {example}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p50 {:.1}  p90 {:.1}  p99 {:.1}  max {:.1} ms", self.p50_ms, self.p90_ms, self.p99_ms, self.max_ms)
    }
}

fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}
