//! All readers of a run: opened, asked how far they are, closed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::LoadError;
use super::play::{Stage, progress};
use super::reader::{Diary, Habit, Reader};
use super::record::hold;
use super::verdict::{History, Verdict};

/// How long the streams of a run may take to open, beside 5 ms for each.
const OPEN_PATIENCE: Duration = Duration::from_secs(30);
/// Streams opened at a time. All at once would measure the backlog of the gateways' sockets, and not what is asked for.
const OPENINGS_AT_ONCE: usize = 64;
/// How often the run looks whether something is complete.
const GLANCE: Duration = Duration::from_millis(50);

/// The readers.
pub struct Audience {
    diaries: Vec<(usize, Arc<Mutex<Diary>>)>,
    tasks: JoinSet<()>,
    stop: CancellationToken,
}

impl Audience {
    /// Starts a reader for each of these users; the first streams are spread over the gateways.
    pub async fn open(stage: &Arc<Stage>, listeners: &[usize], habit: Habit) -> Self {
        let stop = CancellationToken::new();
        let mut diaries = Vec::with_capacity(listeners.len());
        let mut tasks = JoinSet::new();
        for (n, user) in listeners.iter().enumerate() {
            let diary = Arc::new(Mutex::new(Diary::default()));
            diaries.push((*user, diary.clone()));
            let reader = Reader { stage: stage.clone(), user: *user, habit, first: n, diary };
            tasks.spawn(reader.listen(stop.clone()));
            if n % OPENINGS_AT_ONCE == OPENINGS_AT_ONCE - 1 {
                sleep(Duration::from_millis(20)).await;
            }
        }
        Self { diaries, tasks, stop }
    }

    /// Waits until every stream has said `hello`; those that did not in time are broken.
    ///
    /// # Errors
    /// [`LoadError::Setup`] when not one has: then there is nothing to judge.
    pub async fn wait_until_greeted(&self, verdict: &mut Verdict) -> Result<(), LoadError> {
        let deadline = Instant::now() + OPEN_PATIENCE + Duration::from_millis(5 * self.diaries.len() as u64);
        let bar = progress(self.diaries.len() as u64, "{msg:>9} [{bar:40}] {pos}/{len} streams", "opening");
        loop {
            let missing = self.diaries.iter().filter(|(_, diary)| !hold(diary).greeted).count();
            bar.set_position((self.diaries.len() - missing) as u64);
            if missing == 0 || Instant::now() > deadline {
                break;
            }
            sleep(GLANCE).await;
        }
        bar.finish_and_clear();
        let (missing, why) = self.without(|diary| diary.greeted);
        if missing > 0 && missing == self.diaries.len() as u64 {
            return Err(LoadError::Setup(format!("no stream could be opened: {why}")));
        }
        verdict.count_broken_streams(missing, &why);
        Ok(())
    }

    /// Counts the streams that are not open now.
    pub fn count_closed(&self, verdict: &mut Verdict) {
        let (closed, why) = self.without(|diary| diary.open || !diary.greeted);
        verdict.count_broken_streams(closed, &why);
    }

    /// How many are not fine, and why one of them is not.
    fn without(&self, fine: impl Fn(&Diary) -> bool) -> (u64, String) {
        let troubles: Vec<Option<String>> =
            self.diaries.iter().map(|(_, diary)| hold(diary)).filter(|diary| !fine(diary)).map(|diary| diary.trouble.clone()).collect();
        let why = troubles.iter().flatten().next().map_or("no hello", String::as_str);
        (troubles.len() as u64, why.to_owned())
    }

    /// Waits until every reader has all that the histories hold, or for so long.
    pub async fn wait_for_rest(&self, stage: &Stage, histories: &[History], patience: Duration) {
        let deadline = Instant::now() + patience;
        let mut rooms_of: Vec<Vec<usize>> = vec![Vec::new(); stage.users.len()];
        for (at, room) in stage.record.rooms.iter().enumerate().filter(|(at, _)| !histories[*at].messages.is_empty()) {
            for member in &room.members {
                rooms_of[*member].push(at);
            }
        }
        let bar = progress(self.diaries.len() as u64, "{msg:>9} [{bar:40}] {pos}/{len} readers", "draining");
        let mut waiting: Vec<&(usize, Arc<Mutex<Diary>>)> = self.diaries.iter().collect();
        while !waiting.is_empty() && Instant::now() < deadline {
            waiting.retain(|(user, diary)| {
                let diary = hold(diary);
                !rooms_of[*user].iter().all(|room| diary.lines.get(room).is_some_and(|line| histories[*room].is_covered_by(line.seen())))
            });
            bar.set_position((self.diaries.len() - waiting.len()) as u64);
            if !waiting.is_empty() {
                sleep(GLANCE).await;
            }
        }
        bar.finish_and_clear();
        // A moment more for what should not come: a message shown twice at the very end.
        sleep(GLANCE * 4).await;
    }

    /// Closes all streams and gives the diaries.
    pub async fn close(mut self) -> Vec<(usize, Diary)> {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
        self.diaries.iter().map(|(user, diary)| (*user, std::mem::take(&mut *hold(diary)))).collect()
    }
}
