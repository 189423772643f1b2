//! Brings old messages in: above the head of a conversation that leaves Redis for the time, straight into Postgres, any number of times with
//! one result.
//!
//! 1. Everything is proven before anything is written.
//! 2. A sign in Postgres keeps leases away; the conversation is closed, archived to its end, and leaves Redis. Sends get 503 meanwhile.
//! 3. What is not known by (sender, old id) is numbered by (time, old id) above the head and written, a chunk in each transaction.
//! 4. The conversation may be used again; its members get one event.
//!
//! Cut off anywhere it can be begun again: what stands is known by its old id, what is missing comes above it. See `postgres/imports.rs`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;
use uuid::Uuid;

use super::Stores;
use super::clear_obstacle::{Obstacle, Tries};
use super::cool_conversation::{Cooled, cool_conversation};
use super::make_conversation::{GroupWish, make_imported_group, make_single, make_system};
use super::read_conversation::hot;
use crate::domain::event::EventType;
use crate::domain::ids::{ClientKey, ConversationId, Millis, Seq, UserId};
use crate::domain::import::{ImportTarget, OldMessage, check_together, number};
use crate::domain::message::{Draft, Message, MessageKind};
use crate::domain::permission::{Act, Standing, may};
use crate::domain::refusal::{FieldError, Refusal};
use crate::postgres::ChunkWritten;
use crate::redis::commit_change::{Commit, Committed, Step, commit_change};
use crate::redis::read_members::{MembersRead, read_members};
use crate::redis::stored_form::{Audience, Change, StoredEvent};

/// Messages written in one transaction.
const CHUNK_ROWS: usize = 500;
/// Messages looked for in one statement.
const LOOK_ROWS: usize = 2_000;
/// How long the conversation's last entries are waited for.
const COOL_MAX: Duration = Duration::from_secs(20);
/// Pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// Times that an import begins anew because the conversation went on meanwhile.
const ROUNDS_MAX: u32 = 5;

/// What is brought in.
#[derive(Clone, Debug)]
pub struct Import {
    /// The host application's server that does it.
    pub by: UserId,
    /// Where to.
    pub target: ImportTarget,
    /// What, in any order.
    pub messages: Vec<OldMessage>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Where.
    pub conversation: ConversationId,
    /// Messages that are new there.
    pub imported: u64,
    /// Messages that were there.
    pub skipped: u64,
    /// First and last number of the new ones.
    pub seqs: Option<(Seq, Seq)>,
}

/// Why nothing was brought in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportRefusal {
    /// The message at this place cannot be accepted.
    Message(usize, FieldError),
    /// Everything else.
    Refused(Refusal),
}

impl<R: Into<Refusal>> From<R> for ImportRefusal {
    fn from(refusal: R) -> Self {
        Self::Refused(refusal.into())
    }
}

/// Brings messages in. To be run to its end whatever becomes of the request: what it leaves half done is finished by the next one only.
///
/// # Errors
/// What cannot be accepted, before anything is written; [`Refusal::Unavailable`] when a store is away or another import is under way.
pub async fn import_conversation(stores: &Stores, service: bool, import: &Import) -> Result<Imported, ImportRefusal> {
    let outside = check_together(&import.messages, stores.clock.now()).map_err(|(index, error)| ImportRefusal::Message(index, error))?;
    let id = conversation_of(stores, service, import).await?;
    let answered: Vec<ClientKey> = outside.keys().cloned().collect();
    let mut old: HashMap<ClientKey, Seq> = HashMap::new();
    for some in answered.chunks(LOOK_ROWS) {
        old.extend(stores.archive.seqs_of_old_ids(&id, some).await?);
    }
    if let Some((_, index)) = outside.iter().filter(|(id, _)| !old.contains_key(*id)).min_by_key(|(_, index)| **index) {
        return Err(ImportRefusal::Message(*index, FieldError::new("reply_to", "must be the id of a message of this conversation")));
    }
    let mut done = Imported { conversation: id.clone(), imported: 0, skipped: 0, seqs: None };
    let mut known = known(stores, &id, &import.messages).await?;
    done.skipped = known.len() as u64;
    let token = Uuid::now_v7();
    for _ in 0..ROUNDS_MAX {
        if known.len() == import.messages.len() {
            // Nothing is new; but an earlier import may have ended before its members were told.
            if done.imported == 0 && !stores.archive.import_is_open(&id).await? {
                return Ok(done);
            }
            if done.imported == 0 && !stores.archive.begin_import(&id, token).await? {
                return Err(Refusal::Unavailable("another import is under way").into());
            }
            stores.archive.open_after_import(&id, token).await?;
            tell(stores, &import.by, &id, token, &done).await?;
            stores.archive.forget_import(&id, token).await?;
            return Ok(done);
        }
        if !stores.archive.begin_import(&id, token).await? {
            return Err(Refusal::Unavailable("another import is under way").into());
        }
        let outcome = write_unknown(stores, &id, token, import, &old, &known, &mut done).await;
        if let Err(refusal) = outcome {
            // Whoever waits for the conversation need not wait until this import counts as abandoned.
            let _ = stores.archive.open_after_import(&id, token).await;
            return Err(refusal.into());
        }
        known = self::known(stores, &id, &import.messages).await?;
    }
    let _ = stores.archive.open_after_import(&id, token).await;
    Err(Refusal::Unavailable("the conversation is changing").into())
}

/// The conversation, made if it has to be.
async fn conversation_of(stores: &Stores, service: bool, import: &Import) -> Result<ConversationId, Refusal> {
    let allowed = |id: &ConversationId| service && may(Act::Import, id.kind(), Standing::Service);
    if !service {
        return Err(Refusal::Forbidden("only the service brings old messages in"));
    }
    let id = match &import.target {
        ImportTarget::Existing(id) => id.clone(),
        ImportTarget::Single { users: (one, other) } => make_single(stores, one, other).await?.view.conversation.id,
        ImportTarget::Group { key, owner, title, members, history } => {
            let (title, members) = (title.clone(), members.clone());
            let wish = GroupWish { title, members, history: *history, key: Some(format!("import {key}")) };
            make_imported_group(stores, &import.by, owner, &wish).await?
        }
        ImportTarget::System { id, title, members } => {
            make_system(stores, &import.by, id, title.clone(), members).await?;
            id.clone()
        }
    };
    let until = Instant::now() + COOL_MAX;
    loop {
        match stores.archive.conversation(&id).await? {
            Some(conversation) if conversation.dissolved => return Err(Refusal::Dissolved),
            Some(_) if allowed(&id) => return Ok(id),
            Some(_) => return Err(Refusal::Forbidden("only the service brings old messages in")),
            // One that was made a moment ago is on its way to the archive.
            None if !hot(stores, &import.by, &id).await?.is_some_and(|hot| hot.head.made)
                && stores.archive.conversation(&id).await?.is_none() =>
            {
                return Err(Refusal::NotFound);
            }
            None if Instant::now() >= until => return Err(Refusal::Unavailable("the archive is behind")),
            None => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The numbers of those messages that are there.
async fn known(stores: &Stores, id: &ConversationId, messages: &[OldMessage]) -> Result<HashMap<(UserId, ClientKey), Seq>, Refusal> {
    let mut known = HashMap::new();
    for some in messages.chunks(LOOK_ROWS) {
        let keys: Vec<_> = some.iter().map(|message| (message.sender.clone(), message.id.clone())).collect();
        known.extend(stores.archive.seqs_of_keys(id, &keys).await?.into_iter().map(|(sender, key, seq)| ((sender, key), seq)));
    }
    Ok(known)
}

/// Takes the conversation out of Redis and writes what is not known, until all of it stands or the conversation went on.
async fn write_unknown(
    stores: &Stores,
    id: &ConversationId,
    token: Uuid,
    import: &Import,
    outside: &HashMap<ClientKey, Seq>,
    known: &HashMap<(UserId, ClientKey), Seq>,
    done: &mut Imported,
) -> Result<(), Refusal> {
    cool(stores, id, token).await?;
    // Only now the archive has everything: the last member may have left a moment ago.
    if stores.archive.conversation(id).await?.is_none_or(|conversation| conversation.dissolved) {
        return Err(Refusal::Dissolved);
    }
    let mut above = stores.archive.import_head(id).await?;
    let is_known = |message: &OldMessage| known.contains_key(&(message.sender.clone(), message.id.clone()));
    let numbers =
        number(id, &import.messages, is_known, above).map_err(|_| FieldError::new("messages", "are too many for this conversation"))?;
    let mut seqs: HashMap<&ClientKey, Seq> = outside.iter().map(|(id, seq)| (id, *seq)).collect();
    seqs.extend(known.iter().map(|((_, id), seq)| (id, *seq)));
    seqs.extend(numbers.iter().filter_map(|(seq, index)| Some((&import.messages.get(*index)?.id, *seq))));
    for chunk in numbers.chunks(CHUNK_ROWS) {
        let rows = chunk.iter().filter_map(|(seq, index)| {
            let old = import.messages.get(*index)?;
            Some(row(id, old, *seq, old.reply_to.as_ref().and_then(|id| seqs.get(id)).copied()))
        });
        let rows: Vec<Message> = rows.collect();
        let count = rows.len() as u64;
        match stores.archive.import_chunk(id, token, above, rows, stores.clock.now()).await? {
            ChunkWritten::Written => {}
            ChunkWritten::Lost => return Ok(()),
        }
        done.imported += count;
        done.seqs = Some((done.seqs.map_or(above + 1, |(first, _)| first), above + count));
        above += count;
    }
    Ok(())
}

async fn cool(stores: &Stores, id: &ConversationId, token: Uuid) -> Result<(), Refusal> {
    let name = format!("import {token}");
    let until = Instant::now() + COOL_MAX;
    loop {
        match cool_conversation(stores, id, &name, Millis::MAX / 2).await {
            Ok(Cooled::Gone) => return Ok(()),
            Ok(Cooled::Stays | Cooled::Unfinished) => {}
            Err(stop) if Instant::now() >= until => return Err(stop.into()),
            Err(_) => {}
        }
        if Instant::now() >= until {
            return Err(Refusal::Unavailable("the conversation's last messages are not archived yet"));
        }
        stores.archive.begin_import(id, token).await?;
        tokio::time::sleep(PAUSE).await;
    }
}

fn row(id: &ConversationId, old: &OldMessage, seq: Seq, reply_to: Option<Seq>) -> Message {
    let draft = Draft { reply_to, ..Draft::text(old.id.clone(), old.body.clone()) };
    Message {
        seq,
        client_id: Some(old.id.clone()),
        fingerprint: Some(draft.fingerprint()),
        body: old.body.clone(),
        reply_to,
        ..Message::unplaced(Uuid::now_v7(), id.clone(), old.sender.clone(), MessageKind::Text, old.at)
    }
}

/// Tells the members, once.
async fn tell(stores: &Stores, by: &UserId, id: &ConversationId, token: Uuid, done: &Imported) -> Result<(), Refusal> {
    let mut tries = Tries::new(stores);
    loop {
        let obstacle = match read_members(&stores.link, &stores.keys, id, by).await {
            Ok(MembersRead::Here(hot)) => {
                let head = hot.head.conversation.head_seq;
                let (first, last) = done.seqs.map_or((None, None), |(first, last)| (Some(first), Some(last)));
                let facts = json!({"imported": done.imported, "first_seq": first, "last_seq": last, "head_seq": head});
                let events = vec![StoredEvent::new(EventType::ConversationImported, Audience::All, Some(facts))];
                let step = Step { change: Change { events, ..Change::default() }, ..Step::default() };
                let members_version = hot.head.members_version;
                let commit = Commit { conversation: id.clone(), members_version, request: token, steps: vec![step] };
                let now = stores.clock.now();
                match commit_change(&stores.link, &stores.keys, now, stores.settings.outbox_max_entries, &commit).await {
                    Ok(Committed::Done { .. }) => return Ok(()),
                    Ok(Committed::Overloaded) => return Err(Refusal::Overloaded),
                    Ok(Committed::Changed) => Obstacle::Changed,
                    Ok(Committed::Cold) => Obstacle::Cold,
                    Ok(Committed::Closed) => Obstacle::Closed,
                    Ok(Committed::LeaseUsedUp) => Obstacle::LeaseUsedUp,
                    Ok(Committed::StaleEpoch) => Obstacle::StaleEpoch,
                    Err(error) => Obstacle::Redis(error),
                }
            }
            Ok(MembersRead::Cold) => Obstacle::Cold,
            Ok(MembersRead::StaleEpoch) => Obstacle::StaleEpoch,
            Err(error) => Obstacle::Redis(error),
        };
        tries.clear(stores, id, by, obstacle, false).await?;
    }
}
