//! What an outbox entry says to whom. Pure.

use crate::domain::event::{EventType, Pointer};
use crate::domain::ids::UserId;
use crate::redis::deliver_events::{Delivery, IndexChange};
use crate::redis::outbox::{LIVE_MARK, OutboxEntry};
use crate::redis::stored_form::{Audience, StoredEvent};

/// Whether an entry's events need to know who the members are: those that name their readers do not.
#[must_use]
pub fn needs_members(entry: &OutboxEntry) -> bool {
    if entry.change.events.is_empty() {
        entry.message.is_some()
    } else {
        entry.change.events.iter().any(|e| !matches!(e.to, Audience::Only(_)) && !e.t.ends_with(LIVE_MARK))
    }
}

/// The deliveries of an entry in the order of its events, each to those of `members` for whom it is meant. A message without events is a
/// `message.created` for everybody; what leaves no log entry goes another way (`live_reads`).
#[must_use]
pub fn expand_entry(entry: &OutboxEntry, members: &[UserId]) -> Vec<Delivery> {
    let implied = [StoredEvent::new(EventType::MessageCreated, Audience::All, None)];
    let events = match (&entry.change.events[..], &entry.message) {
        ([], Some(_)) => &implied[..],
        (events, _) => events,
    };
    let mut deliveries = Vec::with_capacity(events.len());
    for event in events.iter().filter(|event| !event.t.ends_with(LIVE_MARK)) {
        let Some(kind) = EventType::of_code(&event.t) else {
            tracing::warn!(entry = %entry.id, code = %event.t, "an event of a type that this build does not know is passed over");
            continue;
        };
        let readers = audience(&event.to, members);
        let leaver = matches!(kind, EventType::MemberLeft | EventType::MemberRemoved)
            .then(|| event.d.as_ref().and_then(|d| d.get("user_id")).and_then(|u| u.as_str()))
            .flatten();
        let (own, others): (Vec<UserId>, Vec<UserId>) = readers.into_iter().partition(|user| Some(user.as_str()) == leaver);
        let mut push = |recipients: Vec<UserId>, index: IndexChange| {
            if !recipients.is_empty() {
                deliveries.push(Delivery { outbox_id: entry.id, pointer: pointer(entry, kind, event), recipients, index });
            }
        };
        push(own, IndexChange::Remove);
        push(others, index_change(kind));
    }
    deliveries
}

fn pointer(entry: &OutboxEntry, kind: EventType, event: &StoredEvent) -> Pointer {
    let mut data = event.d.clone();
    // Only the script knew the number of the timeline message that goes with the event; who is removed learns it from here alone.
    if let (Some(serde_json::Value::Object(facts)), Some((seq, _))) = (&mut data, &entry.message)
        && kind != EventType::MessageResequenced
    {
        facts.insert("seq".to_owned(), (*seq).into());
    }
    Pointer {
        kind,
        conversation: entry.conversation.clone(),
        rev: entry.rev,
        seq: entry.message.as_ref().map_or(0, |(seq, _)| *seq),
        at: entry.at,
        data: data.map(|d| d.to_string()),
    }
}

fn index_change(kind: EventType) -> IndexChange {
    match kind {
        EventType::MessageCreated | EventType::ConversationCreated | EventType::ConversationImported | EventType::MemberJoined => {
            IndexChange::Touch
        }
        _ => IndexChange::Leave,
    }
}

fn audience(to: &Audience, members: &[UserId]) -> Vec<UserId> {
    match to {
        Audience::All => members.to_vec(),
        // Named by the very decision that made the entry, so no list of members needs to confirm them.
        Audience::Only(named) => named.iter().filter_map(|user| UserId::parse(user).ok()).collect(),
        Audience::Except(named) => members.iter().filter(|user| !named.iter().any(|n| n == user.as_str())).cloned().collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::ConversationId;
    use crate::redis::outbox::OutboxId;
    use crate::redis::stored_form::Change;

    fn user(name: &str) -> UserId {
        UserId::parse(name).unwrap()
    }

    fn entry(message: bool, events: Vec<StoredEvent>) -> OutboxEntry {
        OutboxEntry {
            id: OutboxId { epoch: 0, n: 9 },
            conversation: ConversationId::parse("system:news").unwrap(),
            rev: 12,
            members_version: 3,
            at: 1_000,
            message: message.then(|| (4, "{}".to_owned())),
            change: Change { events, ..Change::default() },
        }
    }

    fn check(entry: &OutboxEntry, expected: &[(EventType, &[&str], IndexChange)]) {
        let members = [user("ann"), user("bob"), user("cid")];
        let got: Vec<_> = expand_entry(entry, &members)
            .into_iter()
            .map(|d| (d.pointer.kind, d.recipients.iter().map(ToString::to_string).collect::<Vec<_>>(), d.index))
            .collect();
        let expected: Vec<_> = expected.iter().map(|(k, r, i)| (*k, r.iter().map(ToString::to_string).collect::<Vec<_>>(), *i)).collect();
        assert_eq!(got, expected);
    }

    #[test]
    fn a_message_alone_is_for_everybody() {
        check(&entry(true, vec![]), &[(EventType::MessageCreated, &["ann", "bob", "cid"], IndexChange::Touch)]);
        check(&entry(false, vec![]), &[]);
        assert!(needs_members(&entry(true, vec![])) && !needs_members(&entry(false, vec![])));
        let pointer = expand_entry(&entry(true, vec![]), &[user("ann")]).remove(0).pointer;
        assert_eq!((pointer.seq, pointer.rev, pointer.at, pointer.data), (4, 12, 1_000, None));
    }

    #[test]
    fn events_keep_their_order_and_reach_their_audience() {
        let about = Some(serde_json::json!({"user_id": "bob", "by": "ann", "seq": 4}));
        let events = vec![
            StoredEvent::new(EventType::MemberRemoved, Audience::Only(vec!["bob".into()]), about.clone()),
            StoredEvent::new(EventType::MemberRemoved, Audience::Except(vec!["bob".into()]), about.clone()),
            StoredEvent::new(EventType::MessageCreated, Audience::Except(vec!["bob".into()]), None),
        ];
        let removal = entry(true, events);
        check(
            &removal,
            &[
                (EventType::MemberRemoved, &["bob"], IndexChange::Remove),
                (EventType::MemberRemoved, &["ann", "cid"], IndexChange::Leave),
                (EventType::MessageCreated, &["ann", "cid"], IndexChange::Touch),
            ],
        );
        let left = entry(false, vec![StoredEvent::new(EventType::MemberLeft, Audience::All, about)]);
        check(
            &left,
            &[(EventType::MemberLeft, &["bob"], IndexChange::Remove), (EventType::MemberLeft, &["ann", "cid"], IndexChange::Leave)],
        );
    }

    #[test]
    fn named_readers_need_no_list_of_members() {
        let read = entry(false, vec![StoredEvent::new(EventType::ReadAdvanced, Audience::Only(vec!["zoe".into()]), None)]);
        assert!(!needs_members(&read));
        check(&read, &[(EventType::ReadAdvanced, &["zoe"], IndexChange::Leave)]);
        let live = StoredEvent { t: format!("ra{LIVE_MARK}"), to: Audience::Except(vec!["zoe".into()]), d: None };
        let large = entry(false, vec![live, read.change.events[0].clone()]);
        assert!(!needs_members(&large));
        check(&large, &[(EventType::ReadAdvanced, &["zoe"], IndexChange::Leave)]);
        check(&entry(false, vec![StoredEvent { t: "??".into(), to: Audience::All, d: None }]), &[]);
    }
}
