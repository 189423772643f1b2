//! What an outbox entry becomes in the archive.

use crate::domain::conversation::History;
use crate::domain::event::EventType;
use crate::domain::ids::{ShardId, UserId};
use crate::domain::membership::Role;
use crate::domain::preferences::Preferences;
use crate::postgres::{
    ArchiveBatch, BlockRow, ConversationFacts, ConversationRow, MemberRow, PreferencesRow, ReadRow, VersionRow, VoidRow,
};
use crate::redis::outbox::OutboxEntry;
use crate::redis::stored_form::{StoredConversation, Unreadable, parse_message_json};

/// Rows of one entry. Rows that say the same of one thing may come from many entries: the archive keeps the newest.
///
/// # Errors
/// When something in the entry cannot be read; then it has no rows at all.
pub fn rows_of(shard: ShardId, entry: &OutboxEntry) -> Result<ArchiveBatch, Unreadable> {
    let conversation = &entry.conversation;
    let mut rows = ArchiveBatch::default();
    let seq = entry.message.as_ref().map(|(seq, _)| *seq);
    if let Some((seq, json)) = &entry.message {
        rows.messages.push(parse_message_json(conversation, *seq, entry.rev, json)?);
    }
    for member in entry.change.members.iter().map(|m| m.resolved(entry.rev, seq)) {
        rows.members.push(MemberRow {
            conv: conversation.clone(),
            user: user(&member.u)?,
            role: Role::parse(&member.role).ok_or(Unreadable("member role"))?,
            joined_at: member.at,
            joined_seq: member.seq,
            joined_rev: member.rev,
            left_rev: member.left,
            rev: entry.rev,
        });
        // Who joins has read up to the head; a mark is only ever raised, so coming back later does no harm to it.
        if member.left.is_none() && member.rev == entry.rev && member.seq > 0 {
            rows.reads.push(ReadRow { conv: conversation.clone(), user: user(&member.u)?, seq: member.seq, at: member.at });
        }
    }
    if let (Some(before), Some(seq)) = (&entry.change.before, seq) {
        rows.versions.push(VersionRow {
            conv: conversation.clone(),
            seq,
            message: rows.messages.first().map(|message| message.id),
            rev: before.rev,
            at: before.at,
            body: before.b.clone(),
            media: before.m.clone(),
        });
    }
    if let Some((reader, seq, at)) = &entry.change.read {
        rows.reads.push(ReadRow { conv: conversation.clone(), user: user(reader)?, seq: *seq, at: *at });
    }
    if let Some(set) = &entry.change.preferences {
        rows.preferences.push(PreferencesRow {
            conv: conversation.clone(),
            user: user(&set.u)?,
            joined_rev: set.joined,
            preferences: Preferences { muted: set.m, pinned: set.p, hidden_to: set.h, marked_at: set.k, cleared_to: set.c },
            rev: entry.rev,
        });
    }
    if let Some(block) = &entry.change.block {
        let (blocker, blocked) = (user(&block.by)?, user(&block.of)?);
        rows.blocks.push(BlockRow { blocker, blocked, conv: conversation.clone(), since: block.since, rev: entry.rev });
    }
    rows.voids.extend(entry.change.voids.iter().map(|(from, to)| VoidRow { conv: conversation.clone(), from: *from, to: *to }));
    let facts = entry.change.conversation.as_ref().map(facts_of).transpose()?;
    // A watermark, an edit or a mark to read again is no activity of the conversation.
    let is = |kind: EventType| entry.change.events.iter().any(|e| e.t == kind.code());
    let made = entry.change.events.is_empty() || is(EventType::MessageCreated) || is(EventType::MessageResequenced);
    let active = (seq.is_some() && made) || is(EventType::ConversationImported) || facts.is_some() || !rows.members.is_empty();
    rows.conversations.push(ConversationRow {
        id: conversation.clone(),
        shard,
        facts,
        head_seq: seq.unwrap_or(0),
        rev: entry.rev,
        updated_at: if active { entry.at } else { 0 },
    });
    Ok(rows)
}

fn facts_of(stored: &StoredConversation) -> Result<ConversationFacts, Unreadable> {
    let pair = stored.pair.as_ref().map(|(low, high)| Ok((user(low)?, user(high)?))).transpose()?;
    Ok(ConversationFacts {
        title: stored.title.clone(),
        owner: stored.owner.as_deref().map(user).transpose()?,
        pair,
        history: History::parse(&stored.history).ok_or(Unreadable("history"))?,
        created_at: stored.at,
        dissolved: stored.dissolved,
    })
}

fn user(text: &str) -> Result<UserId, Unreadable> {
    UserId::parse(text).map_err(|_| Unreadable("user id"))
}
