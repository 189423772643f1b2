//! One member's stream: opened, read, opened again elsewhere from the last place, until the run is over.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::Rng;
use serde::Deserialize;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::LoadError;
use super::gateways::Pause;
use super::play::Stage;
use super::record::hold;
use super::sse::{Frame, FrameReader};
use super::verdict::Line;

/// Longest wait before a reconnect that the reader grants a server: a run is over before a phone's patience is.
const RETRY_MS_MAX: u64 = 1_000;
/// How long a gateway may take to answer the opening of a stream.
const OPEN_PATIENCE: Duration = Duration::from_secs(15);

/// How a reader behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Habit {
    /// Stays connected for as long as the gateway lets it.
    Stays,
    /// Leaves after a random time up to so many milliseconds, or in the middle of a burst, and comes back at the next gateway.
    ComesAndGoes {
        /// Longest stay.
        stay_ms_max: u64,
    },
}

/// What a reader has seen and been through. Shared with the run, which asks when it is over.
#[derive(Debug, Default)]
pub struct Diary {
    /// One line for each conversation seen or expected.
    pub lines: HashMap<usize, Line>,
    /// Whether the stream is open now.
    pub open: bool,
    /// Whether `hello` was ever received.
    pub greeted: bool,
    /// Streams opened.
    pub opened: u64,
    /// Openings that were refused or failed.
    pub refused: u64,
    /// Streams that broke although nobody wanted it.
    pub broke: u64,
    /// Streams that the gateway ended with a word (`goodbye`, its longest life, `unavailable`).
    pub dismissed: u64,
    /// `resync` events by reason.
    pub resyncs: HashMap<String, u64>,
    /// Comment lines.
    pub heartbeats: u64,
    /// The last trouble in words.
    pub trouble: Option<String>,
}

/// A reader.
pub struct Reader {
    /// Where to listen, and where to write what was heard.
    pub stage: Arc<Stage>,
    /// Place of the user who listens.
    pub user: usize,
    /// How it behaves.
    pub habit: Habit,
    /// Gateway to begin with.
    pub first: usize,
    /// Its diary.
    pub diary: Arc<Mutex<Diary>>,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    data: Content<'a>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    message: Message<'a>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    conversation_id: Cow<'a, str>,
    seq: u64,
}

#[derive(Deserialize)]
struct Resync {
    reason: String,
}

/// What the frames of one chunk ask of the reader.
#[derive(Default)]
struct Asked {
    resync: bool,
    dismissed: bool,
    retry_ms: Option<u64>,
}

enum End {
    Stopped,
    Left,
    Dismissed,
    Broke(String),
}

impl Reader {
    /// Reads until `stop`.
    pub async fn listen(self, stop: CancellationToken) {
        let mut last: Option<String> = None;
        let mut turn = self.first;
        let mut pause = Pause::default();
        while !stop.is_cancelled() {
            let open = timeout(OPEN_PATIENCE, self.stage.gateways.open_stream(turn, &self.stage.users[self.user], last.as_deref()));
            turn += 1;
            let answer = tokio::select! {
                () = stop.cancelled() => return,
                answer = open => answer.unwrap_or_else(|_| Err(LoadError::Stream("no answer in time".into()))),
            };
            let mut retry_ms = None;
            match answer {
                Err(err) => {
                    let mut diary = hold(&self.diary);
                    diary.refused += 1;
                    diary.trouble = Some(err.to_string());
                }
                Ok(answer) => {
                    hold(&self.diary).opened += 1;
                    let before = last.clone();
                    let end = self.read(answer, &mut last, &mut retry_ms, &stop).await;
                    let mut diary = hold(&self.diary);
                    diary.open = false;
                    match end {
                        Ok(End::Stopped) => return,
                        Ok(End::Left) => {
                            pause = Pause::default();
                            continue;
                        }
                        Ok(End::Dismissed) => diary.dismissed += 1,
                        Ok(End::Broke(trouble)) => {
                            diary.broke += 1;
                            diary.trouble = Some(trouble);
                        }
                        Err(err) => {
                            diary.broke += 1;
                            diary.trouble = Some(err.to_string());
                        }
                    }
                    if before != last {
                        pause = Pause::default();
                    }
                }
            }
            let asked = retry_ms.map(|ms: u64| Duration::from_millis(ms.min(RETRY_MS_MAX)));
            tokio::select! {
                () = stop.cancelled() => return,
                () = pause.wait(asked) => {}
            }
        }
    }

    async fn read(
        &self,
        mut answer: reqwest::Response,
        last: &mut Option<String>,
        retry_ms: &mut Option<u64>,
        stop: &CancellationToken,
    ) -> Result<End, LoadError> {
        let connected_us = self.stage.record.now_us();
        let mut frames = FrameReader::default();
        let leave = match self.habit {
            Habit::Stays => None,
            Habit::ComesAndGoes { stay_ms_max } => Some(Instant::now() + Duration::from_millis(rand::rng().random_range(0..=stay_ms_max))),
        };
        let mut heartbeats = 0;
        loop {
            let chunk = tokio::select! {
                biased;
                () = stop.cancelled() => return Ok(End::Stopped),
                () = sleep_until(leave.unwrap_or_else(Instant::now)), if leave.is_some() => return Ok(End::Left),
                chunk = answer.chunk() => chunk,
            };
            let chunk = match chunk {
                Ok(Some(chunk)) => chunk,
                Ok(None) => return Ok(End::Broke("the stream ended without a word".into())),
                Err(err) => return Ok(End::Broke(format!("the stream broke: {err}"))),
            };
            let at_us = self.stage.record.now_us();
            let mut asked = Asked::default();
            let mut fault = None;
            frames.feed(&chunk, |frame| {
                if let Some(id) = frame.id {
                    last.get_or_insert_default().replace_range(.., id);
                }
                if let Err(err) = self.take(&frame, at_us, connected_us, &mut asked) {
                    fault.get_or_insert(err);
                }
            })?;
            if let Some(err) = fault {
                return Err(err);
            }
            if frames.comments() > heartbeats {
                hold(&self.diary).heartbeats += frames.comments() - heartbeats;
                heartbeats = frames.comments();
            }
            *retry_ms = asked.retry_ms.or(*retry_ms);
            if asked.resync {
                self.catch_up().await?;
            }
            if asked.dismissed {
                return Ok(End::Dismissed);
            }
        }
    }

    fn take(&self, frame: &Frame<'_>, at_us: u64, connected_us: u64, asked: &mut Asked) -> Result<(), LoadError> {
        asked.retry_ms = frame.retry_ms.or(asked.retry_ms);
        match frame.event {
            "message.created" => self.show(frame.data, at_us, connected_us)?,
            "message.resequenced" => {
                self.stage.record.resequenced.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                self.show(frame.data, at_us, connected_us)?;
            }
            "hello" => {
                let mut diary = hold(&self.diary);
                diary.greeted = true;
                diary.open = true;
            }
            "resync" => {
                let reason = serde_json::from_str::<Resync>(frame.data).map_or_else(|_| "unreadable".into(), |resync| resync.reason);
                *hold(&self.diary).resyncs.entry(reason).or_default() += 1;
                asked.resync = true;
            }
            "goodbye" | "token_expired" | "unavailable" => {
                asked.dismissed = true;
                hold(&self.diary).trouble = Some(frame.event.to_owned());
            }
            _ => {}
        }
        Ok(())
    }

    fn show(&self, data: &str, at_us: u64, connected_us: u64) -> Result<(), LoadError> {
        let unreadable = || LoadError::Stream(format!("a message event cannot be read: {data:.200}"));
        let message = serde_json::from_str::<Envelope<'_>>(data).map_err(|_| unreadable())?.data.message;
        let id = Uuid::try_parse(&message.id).map_err(|_| unreadable())?.as_u128();
        let Some(room) = self.stage.record.room_at(&message.conversation_id) else { return Ok(()) };
        let fresh = hold(&self.diary).lines.entry(room).or_default().show(message.seq);
        if fresh {
            self.stage.record.delivered(room, message.seq, id, at_us, connected_us);
        }
        Ok(())
    }

    /// Does what the contract asks after a `resync`: reads what was missed. (Its wait up to `spread_ms` is left out: a run is in a hurry.)
    async fn catch_up(&self) -> Result<(), LoadError> {
        let rooms: Vec<(usize, u64)> = hold(&self.diary).lines.iter().map(|(room, line)| (*room, line.seen().highest())).collect();
        for (room, after) in rooms {
            let history = self.stage.gateways.history(&self.stage.users[self.user], &self.stage.record.rooms[room].id, after).await?;
            let mut diary = hold(&self.diary);
            let line = diary.lines.entry(room).or_default();
            for message in history.messages {
                line.catch_up(message.seq);
            }
        }
        Ok(())
    }
}
