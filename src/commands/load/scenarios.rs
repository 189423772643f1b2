//! What each scenario plays, as a plan without I/O: who is there, who listens, who says what and when.

use std::path::Path;

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde::Deserialize;

use super::LoadError;
use super::args::{LoadArgs, MEMBERS_MAX, MESSAGES_MAX, Scenario};
use super::reader::Habit;

/// A conversation to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoomPlan {
    /// Everybody is in it; the first user makes it.
    GroupOfAll,
    /// Two users, by their places.
    Pair(usize, usize),
}

/// One message to be sent.
#[derive(Clone, Debug)]
pub struct Due {
    /// Microseconds after the start of the traffic.
    pub at_us: u64,
    /// Place of the conversation.
    pub room: usize,
    /// Place of the sender.
    pub sender: usize,
    /// The text.
    pub body: String,
}

/// What is sent.
#[derive(Clone, Debug)]
pub enum Traffic {
    /// At set times; a sender who waits for an answer sends its next late rather than early.
    AtTimes(Vec<Due>),
    /// By so many clients, each as fast as it is answered.
    ClosedLoop {
        /// How many.
        clients: usize,
        /// For how long.
        seconds: u64,
    },
}

/// A run before it has begun.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Its name in the report.
    pub name: String,
    /// Ends of user ids; the run puts a fresh beginning before each.
    pub users: Vec<String>,
    /// Conversations.
    pub rooms: Vec<RoomPlan>,
    /// Places of the users who listen.
    pub listeners: Vec<usize>,
    /// How they behave.
    pub habit: Habit,
    /// Seconds for which open streams are only held before anything is sent.
    pub hold_seconds: u64,
    /// What is sent.
    pub traffic: Traffic,
}

impl Plan {
    /// Seconds that the plan takes when nothing falls behind.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        let sending = match &self.traffic {
            Traffic::AtTimes(dues) => dues.iter().map(|due| due.at_us).max().unwrap_or(0) / 1_000_000 + 1,
            Traffic::ClosedLoop { seconds, .. } => *seconds,
        };
        self.hold_seconds + sending
    }
}

/// Makes the plan that the command line asks for.
///
/// # Errors
/// [`LoadError::Usage`] for what cannot be played, [`LoadError::Setup`] for a file that cannot be read.
pub fn plan(args: &LoadArgs) -> Result<Plan, LoadError> {
    match (args.scenario, args.from.as_deref()) {
        (Some(Scenario::EveningPeak), _) => evening_peak(args),
        (Some(Scenario::Pairs), _) => pairs(args),
        (Some(Scenario::Resume), _) => resume(args),
        (Some(Scenario::Idle), _) => Ok(idle(args)),
        (None, Some(file)) => {
            let text = std::fs::read_to_string(file).map_err(|err| LoadError::Setup(format!("{}: {err}", file.display())))?;
            replay(args, file, &text)
        }
        (None, None) => Err(LoadError::Usage("name a scenario or a file with --from".into())),
    }
}

fn names(count: usize) -> Vec<String> {
    (1..=count).map(|n| format!("u{n:05}")).collect()
}

fn listening(args: &LoadArgs, members: usize) -> Result<Vec<usize>, LoadError> {
    let count = args.streaming.unwrap_or(members);
    if count > members {
        return Err(LoadError::Usage(format!("--streaming {count}: there are only {members} members")));
    }
    Ok((0..count).collect())
}

/// Times of `rate` messages a second for `seconds`, at even distances.
fn even_times(rate: f64, seconds: u64) -> Result<Vec<u64>, LoadError> {
    #[allow(clippy::cast_precision_loss)] // A day of seconds is exact in an f64.
    let count = (rate * seconds as f64).ceil();
    #[allow(clippy::cast_precision_loss)]
    if count > MESSAGES_MAX as f64 {
        return Err(LoadError::Usage(format!("{count} messages are more than the {MESSAGES_MAX} that one run plans")));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // Bounded just above, and never negative.
    let count = count.max(1.0) as u32;
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    Ok((0..count).map(|n| (f64::from(n) / rate * 1_000_000.0) as u64).collect())
}

fn evening_peak(args: &LoadArgs) -> Result<Plan, LoadError> {
    let members = args.members.unwrap_or(200);
    let rate = f64::from(args.per_minute.unwrap_or(600)) / 60.0 * args.speedup.unwrap_or(1.0);
    let mut chance = StdRng::seed_from_u64(1);
    let dues = even_times(rate, args.seconds.unwrap_or(60))?
        .into_iter()
        .map(|at_us| Due { at_us, room: 0, sender: chance.random_range(0..members), body: small_talk(&mut chance) })
        .collect();
    Ok(Plan {
        name: "evening-peak".into(),
        users: names(members),
        rooms: vec![RoomPlan::GroupOfAll],
        listeners: listening(args, members)?,
        habit: Habit::Stays,
        hold_seconds: 0,
        traffic: Traffic::AtTimes(dues),
    })
}

fn pairs(args: &LoadArgs) -> Result<Plan, LoadError> {
    let pairs = args.pairs.unwrap_or(100);
    let seconds = args.seconds.unwrap_or(60);
    let traffic = if let Some(clients) = args.clients {
        Traffic::ClosedLoop { clients: clients.min(pairs), seconds }
    } else {
        let mut chance = StdRng::seed_from_u64(2);
        let times = even_times(args.rate.unwrap_or(50.0), seconds)?;
        let dues = times.into_iter().enumerate().map(|(n, at_us)| {
            let room = n % pairs;
            Due { at_us, room, sender: room * 2 + chance.random_range(0..2), body: small_talk(&mut chance) }
        });
        Traffic::AtTimes(dues.collect())
    };
    Ok(Plan {
        name: "pairs".into(),
        users: names(pairs * 2),
        rooms: (0..pairs).map(|n| RoomPlan::Pair(n * 2, n * 2 + 1)).collect(),
        listeners: listening(args, pairs * 2)?,
        habit: Habit::Stays,
        hold_seconds: 0,
        traffic,
    })
}

fn resume(args: &LoadArgs) -> Result<Plan, LoadError> {
    let readers = args.readers.unwrap_or(8);
    let mut chance = StdRng::seed_from_u64(3);
    let dues = even_times(args.rate.unwrap_or(20.0), args.seconds.unwrap_or(60))?
        .into_iter()
        .map(|at_us| Due { at_us, room: 0, sender: 0, body: small_talk(&mut chance) })
        .collect();
    Ok(Plan {
        name: "resume".into(),
        users: names(readers + 1),
        rooms: vec![RoomPlan::GroupOfAll],
        listeners: (1..=readers).collect(),
        habit: Habit::ComesAndGoes { stay_ms_max: 300 },
        hold_seconds: 0,
        traffic: Traffic::AtTimes(dues),
    })
}

/// Streams on which nothing happens, and then one message to each of some of them: a stream that is open but deaf is the worst of outages.
fn idle(args: &LoadArgs) -> Plan {
    const PROBES_MAX: usize = 50;
    let streams = args.streams.unwrap_or(500);
    let users = streams.max(2);
    let probes = (users / 2).min(PROBES_MAX);
    let stride = (users / 2) / probes;
    let rooms: Vec<RoomPlan> = (0..probes).map(|n| RoomPlan::Pair(n * stride * 2, n * stride * 2 + 1)).collect();
    let dues = (0..probes).map(|n| Due { at_us: 20_000 * n as u64, room: n, sender: n * stride * 2, body: "still there?".into() });
    Plan {
        name: "idle".into(),
        users: names(users),
        rooms,
        listeners: (0..streams).collect(),
        habit: Habit::Stays,
        hold_seconds: args.seconds.unwrap_or(20),
        traffic: Traffic::AtTimes(dues.collect()),
    }
}

#[derive(Deserialize)]
struct Recording {
    n: u64,
    #[serde(with = "time::serde::rfc3339")]
    at: time::OffsetDateTime,
    sender: String,
    body: String,
}

/// A recorded chat: sorted by (at, n), as one group of all who spoke. Days between two evenings are not waited for: a silence lasts an hour at most.
fn replay(args: &LoadArgs, file: &Path, text: &str) -> Result<Plan, LoadError> {
    const SILENCE_US_MAX: u64 = 3_600 * 1_000_000;
    let mut lines = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let line: Recording =
            serde_json::from_str(line).map_err(|err| LoadError::Setup(format!("{}, line {}: {err}", file.display(), at + 1)))?;
        lines.push(line);
    }
    if lines.is_empty() || lines.len() as u64 > MESSAGES_MAX {
        return Err(LoadError::Setup(format!("{}: holds {} messages; 1 to {MESSAGES_MAX} can be played", file.display(), lines.len())));
    }
    lines.sort_by_key(|line| (line.at, line.n));
    let mut users: Vec<String> = Vec::new();
    let mut places = std::collections::HashMap::new();
    let speedup = args.speedup.unwrap_or(1.0);
    let mut at_us = 0.0;
    let mut before = lines[0].at;
    let mut dues = Vec::with_capacity(lines.len());
    for (n, line) in lines.into_iter().enumerate() {
        let silence = u64::try_from((line.at - before).whole_microseconds()).unwrap_or(0).min(SILENCE_US_MAX);
        before = line.at;
        #[allow(clippy::cast_precision_loss)] // At most an hour of microseconds.
        let step = silence as f64 / speedup;
        at_us = match args.rate {
            Some(rate) => f64::from(u32::try_from(n).unwrap_or(u32::MAX)) / rate * 1_000_000.0,
            None => at_us + step,
        };
        let sender = *places.entry(line.sender.clone()).or_insert_with(|| {
            users.push(line.sender);
            users.len() - 1
        });
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        dues.push(Due { at_us: at_us as u64, room: 0, sender, body: line.body });
    }
    if users.len() < 2 || users.len() > MEMBERS_MAX {
        return Err(LoadError::Setup(format!("{}: {} people speak; a group has 2 to {MEMBERS_MAX}", file.display(), users.len())));
    }
    Ok(Plan {
        name: format!("replay of {}", file.file_name().unwrap_or_default().to_string_lossy()),
        listeners: listening(args, users.len())?,
        users,
        rooms: vec![RoomPlan::GroupOfAll],
        habit: Habit::Stays,
        hold_seconds: 0,
        traffic: Traffic::AtTimes(dues),
    })
}

/// A text of 3 to 40 words, as chats have them; some hold what a careless path would break.
pub fn small_talk(chance: &mut impl Rng) -> String {
    const WORDS: [&str; 24] = [
        "tonight",
        "who",
        "brings",
        "the",
        "bread",
        "and",
        "cheese",
        "ok",
        "see",
        "you",
        "at",
        "eight",
        "maybe",
        "naïve",
        "晚上",
        "好的",
        "да",
        "👍🏽",
        "\"quoted\"",
        "back\\slash",
        "line\nbreak",
        "it's",
        "später",
        "<b>",
    ];
    // Squared, so that short ones are the rule.
    let roll: f64 = chance.random_range(0.0..1.0);
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let words = 3 + (roll * roll * 37.0) as usize;
    let picked: Vec<&str> = (0..words).filter_map(|_| WORDS.choose(chance).copied()).collect();
    picked.join(" ")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        load: LoadArgs,
    }

    fn planned(words: &str) -> (Plan, Vec<Due>) {
        let line = format!("load --url http://x --secret s {words}");
        let plan = plan(&Line::try_parse_from(line.split_whitespace()).unwrap().load).unwrap();
        let Traffic::AtTimes(dues) = &plan.traffic else { panic!("{words} is not played at set times") };
        let dues = dues.clone();
        (plan, dues)
    }

    #[test]
    fn an_evening_has_its_members_and_its_pace() {
        let (plan, dues) = planned("evening-peak");
        assert_eq!((plan.users.len(), plan.listeners.len(), dues.len()), (200, 200, 600));
        assert_eq!((dues[0].at_us, dues[599].at_us), (0, 59_900_000));
        let (plan, dues) = planned("evening-peak --speedup 10 --seconds 6 --streaming 3");
        assert_eq!((plan.listeners.len(), dues.len(), dues[599].at_us), (3, 600, 5_990_000));
    }

    #[test]
    fn each_sender_of_a_pair_is_in_it() {
        let (plan, dues) = planned("pairs --pairs 7 --rate 10 --seconds 10");
        for due in dues {
            let RoomPlan::Pair(a, b) = plan.rooms[due.room] else { panic!("not a pair") };
            assert!(due.sender == a || due.sender == b);
        }
    }

    #[test]
    fn probes_of_idle_streams_go_to_different_users() {
        for streams in [1, 2, 3, 99, 100, 1_001] {
            let (plan, dues) = planned(&format!("idle --streams {streams}"));
            let mut seen = std::collections::HashSet::new();
            for room in &plan.rooms {
                let RoomPlan::Pair(a, b) = *room else { panic!("not a pair") };
                assert!(seen.insert(a) && seen.insert(b) && a.max(b) < plan.users.len(), "{streams}");
            }
            assert_eq!(plan.listeners.len(), streams);
            assert!(!dues.is_empty());
        }
    }

    #[test]
    fn a_real_evening_is_sorted_by_time_and_old_number() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/irc-two-evenings.ndjson");
        let (plan, dues) = planned(&format!("--from {file} --speedup 60"));
        assert_eq!((plan.users.len(), plan.listeners.len(), dues.len()), (301, 301, 3_000));
        assert!(dues.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        // The months between the two evenings are not waited for.
        assert!(plan.seconds() < 4 * 3_600, "{}", plan.seconds());
        let (_, dues) = planned(&format!("--from {file} --rate 100"));
        assert_eq!(dues[2_999].at_us, 29_990_000);
    }

    #[test]
    fn small_talk_is_what_a_gateway_takes() {
        let mut chance = StdRng::seed_from_u64(7);
        for _ in 0..1_000 {
            let text = small_talk(&mut chance);
            assert!(text.chars().any(|c| !c.is_whitespace()) && text.chars().count() <= 4_000);
        }
    }
}
