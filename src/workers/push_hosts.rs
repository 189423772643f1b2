//! What a worker knows of the push services that it calls. Anybody can register endpoints at hosts of their own, so a host is trusted with many
//! calls only while it takes what it gets:
//!
//! | a host | calls under way |
//! |---|---|
//! | that took a push lately, at once | half of all |
//! | that takes pushes, but takes its time | half of all, shared with all below |
//! | of which nothing is known, or that has failed several times in a row | one |
//!
//! So however many dead hosts are registered, half of the calls are left to those that work.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::postgres::{CLAIMED_OF_HOST_MAX, HostRoom, WaitingHost};

/// Failures in a row after which what a host took before counts no more.
const FAILURES_MAX: u32 = 3;
/// Time within which a host answers that does not keep calls waiting.
const QUICK: Duration = Duration::from_secs(2);
/// For how long after its last call a host is remembered.
pub(super) const KEPT: Duration = Duration::from_secs(3_600);

/// How many calls are under way to each host, and what the hosts did lately.
#[derive(Debug)]
pub(super) struct Hosts {
    half: u64,
    known: Mutex<HashMap<String, HostState>>,
}

#[derive(Debug, Default)]
struct HostState {
    under_way: u64,
    called_at: Option<Instant>,
    failures: u32,
    took: bool,
    quick: bool,
}

impl HostState {
    fn is_willing(&self) -> bool {
        self.took && self.failures < FAILURES_MAX
    }

    fn is_proven(&self) -> bool {
        self.is_willing() && self.quick
    }
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// The host took the push.
    Took,
    /// It wants this one not, or not now.
    Answered,
    /// It did not answer, or is out of order.
    Failed,
}

/// A call under way; it is not any more when this is dropped.
pub(super) struct Call {
    hosts: Arc<Hosts>,
    host: String,
}

impl Hosts {
    /// For a worker that has so many calls under way at most.
    pub(super) fn new(calls_max: u64) -> Self {
        Self { half: (calls_max / 2).max(1), known: Mutex::default() }
    }

    /// These took pushes lately, from others or before this worker was started: who they are must not be found out anew among dead ones.
    pub(super) fn recall(&self, willing: Vec<String>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for host in willing {
            known.entry(host).or_insert(HostState { called_at: Some(Instant::now()), took: true, quick: true, ..HostState::default() });
        }
    }

    pub(super) fn begin(self: &Arc<Self>, host: &str) -> Call {
        self.with(host, |state| (state.under_way, state.called_at) = (state.under_way + 1, Some(Instant::now())));
        Call { hosts: Arc::clone(self), host: host.to_owned() }
    }

    fn with(&self, host: &str, change: impl FnOnce(&mut HostState)) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        change(known.entry(host.to_owned()).or_default());
    }

    /// What may be claimed now, given the hosts for which something waits; unless these are `all` of them, hosts that are proven are
    /// looked at as well.
    pub(super) fn rooms(&self, waiting: &[WaitingHost], all: bool) -> Vec<HostRoom> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let nothing = HostState::default();
        let room = |host: &str, state: &HostState, left: u64| {
            let most = if state.is_willing() { self.half } else { 1 };
            let most = most.saturating_sub(state.under_way).min(left).min(CLAIMED_OF_HOST_MAX);
            (most > 0).then(|| HostRoom { host: host.to_owned(), most })
        };
        let free = waiting.iter().filter(|one| one.late_ms >= 0).map(|one| (one, known.get(&one.host).unwrap_or(&nothing)));
        let (proven, mut others): (Vec<_>, Vec<_>) = free.partition(|(_, state)| state.is_proven());
        let mut rooms: Vec<HostRoom> = if all {
            proven.into_iter().filter_map(|(one, state)| room(&one.host, state, self.half)).collect()
        } else {
            known.iter().filter(|(_, state)| state.is_proven()).filter_map(|(host, state)| room(host, state, self.half)).collect()
        };
        // In turn: whoever was not called for longest, of those that never were whoever waits longest.
        others.sort_by_key(|(one, state)| (state.called_at, std::cmp::Reverse(one.late_ms)));
        let taken: u64 = known.values().filter(|state| !state.is_proven()).map(|state| state.under_way).sum();
        let mut left = self.half.saturating_sub(taken);
        for (one, state) in others {
            if let Some(room) = room(&one.host, state, left) {
                left -= room.most;
                rooms.push(room);
            }
        }
        rooms
    }

    /// Forgets hosts with which there is nothing.
    pub(super) fn forget(&self) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, state| state.under_way > 0 || state.called_at.is_some_and(|at| at.elapsed() < KEPT));
    }
}

impl Call {
    /// Notes how it ended, and after how long.
    pub(super) fn ended(&self, met: Met, after: Duration) {
        self.hosts.with(&self.host, |state| {
            if met == Met::Failed {
                state.failures = state.failures.saturating_add(1);
                return;
            }
            // Who failed for long proves itself anew.
            state.took = met == Met::Took || state.is_willing();
            (state.failures, state.quick) = (0, after < QUICK);
        });
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.hosts.with(&self.host, |state| state.under_way = state.under_way.saturating_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_ONCE: Duration = Duration::from_millis(5);

    fn waiting(hosts: &[&str]) -> Vec<WaitingHost> {
        hosts.iter().map(|host| WaitingHost { host: (*host).to_owned(), late_ms: 0 }).collect()
    }

    fn rooms(hosts: &Arc<Hosts>, of: &[&str]) -> Vec<(String, u64)> {
        hosts.rooms(&waiting(of), true).into_iter().map(|room| (room.host, room.most)).collect()
    }

    fn expected(rooms: &[(&str, u64)]) -> Vec<(String, u64)> {
        rooms.iter().map(|(host, most)| ((*host).to_owned(), *most)).collect()
    }

    #[test]
    fn a_host_gets_one_call_until_it_takes_a_push_and_half_of_all_then() {
        let hosts = Arc::new(Hosts::new(8));
        assert_eq!(rooms(&hosts, &["a"]), expected(&[("a", 1)]));
        let first = hosts.begin("a");
        assert_eq!(rooms(&hosts, &["a"]), expected(&[]));
        first.ended(Met::Answered, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[]), "an answer alone proves nothing");
        first.ended(Met::Took, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[("a", 3)]));
        (0..2).for_each(|_| first.ended(Met::Failed, AT_ONCE));
        assert_eq!(rooms(&hosts, &["a"]), expected(&[("a", 3)]), "twice may happen");
        first.ended(Met::Failed, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[]));
        drop(first);
        let again = hosts.begin("a");
        again.ended(Met::Answered, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[]), "it takes nothing yet");
        again.ended(Met::Took, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[("a", 3)]));
    }

    #[test]
    fn hosts_that_have_proven_nothing_share_half_of_the_calls() {
        let hosts = Arc::new(Hosts::new(8));
        let proof = hosts.begin("good");
        proof.ended(Met::Took, AT_ONCE);
        drop(proof);
        assert_eq!(rooms(&hosts, &["a", "b", "c", "d", "e", "f", "good"]).len(), 5);
        let mut calls: Vec<Call> = ["a", "b", "c", "d"].iter().map(|host| hosts.begin(host)).collect();
        assert_eq!(rooms(&hosts, &["e", "f", "good"]), expected(&[("good", 4)]));
        // One that takes what it gets, but slowly, stays among them.
        calls[0].ended(Met::Took, QUICK);
        assert_eq!(rooms(&hosts, &["a", "e", "good"]), expected(&[("good", 4)]));
        calls.remove(1);
        assert_eq!(rooms(&hosts, &["e", "f", "good"]), expected(&[("good", 4), ("e", 1)]));
        calls[0].ended(Met::Took, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a", "e", "f"]), expected(&[("a", 3), ("e", 1), ("f", 1)]));
    }

    #[test]
    fn they_take_turns_and_nobody_is_asked_before_the_time() {
        let hosts = Arc::new(Hosts::new(4));
        for host in ["a", "b", "c"] {
            hosts.begin(host).ended(Met::Failed, AT_ONCE);
        }
        assert_eq!(rooms(&hosts, &["a", "b", "c", "new"]), expected(&[("new", 1), ("a", 1)]));
        hosts.begin("a").ended(Met::Failed, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a", "b", "c"]), expected(&[("b", 1), ("c", 1)]));
        let early = WaitingHost { host: "b".into(), late_ms: -1 };
        assert_eq!(hosts.rooms(&[early], true), []);
    }

    #[test]
    fn whoever_is_proven_is_looked_at_among_any_number_of_others() {
        let hosts = Arc::new(Hosts::new(4));
        hosts.begin("good").ended(Met::Took, AT_ONCE);
        assert_eq!(rooms(&hosts, &["a"]), expected(&[("a", 1)]));
        assert_eq!(hosts.rooms(&waiting(&["a"]), false)[0], HostRoom { host: "good".into(), most: 2 });
        hosts.recall(vec!["other".into(), "good".into()]);
        assert_eq!(rooms(&hosts, &["a", "other"]), expected(&[("other", 2), ("a", 1)]));
        hosts.forget();
        assert!(!hosts.known.lock().unwrap().is_empty());
    }
}
