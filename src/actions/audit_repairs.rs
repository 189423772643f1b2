//! Mends what an audit found, where what is right can be worked out from what stands beside it. Everything else is for a person.

use uuid::Uuid;

use super::Stores;
use super::archive_outbox::ArchiveStop;
use super::audit_hot::is_uncounted;
use crate::domain::audit::{Code, Finding};
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::message::Message;
use crate::postgres::audit_repairs::Mend;
use crate::redis::audit_keys::{add_key, drop_from_list, drop_key, set_mark, set_member_count, set_mention, set_rev, set_uncounted};
use crate::redis::inspect_conversation::{Inspected, Inspection, inspect_conversation};
use crate::redis::touch_index::touch_index;

/// Mends a finding, looking at everything once more; false when it is not one that is mended, or no longer there.
///
/// # Errors
/// When a store does not answer.
pub async fn repair(stores: &Stores, finding: &Finding) -> Result<bool, ArchiveStop> {
    if !finding.code.is_repaired() {
        return Ok(false);
    }
    if finding.code == Code::MediaUnwatched {
        let Some(id) = finding.subject.as_deref().and_then(|id| Uuid::try_parse(id).ok()) else { return Ok(false) };
        stores.archive.watch_media(id).await?;
        return Ok(true);
    }
    let Some(id) = &finding.conversation else { return Ok(false) };
    let seq = finding.seq.unwrap_or(0);
    let mend = match finding.code {
        Code::HeadBehind | Code::RevBehind => Mend::Head,
        Code::MarkBeyondHead if finding.subject.is_none() => Mend::Marks,
        Code::MediaReferenceMissing | Code::MediaReferenceStale => Mend::References,
        Code::SearchMissing => Mend::Terms,
        Code::SearchStale => Mend::NoTerms,
        Code::WebhookStuck => Mend::Line,
        _ => return repair_in_redis(stores, finding, id, seq).await,
    };
    stores.archive.mend(mend, id, seq).await?;
    Ok(true)
}

async fn repair_in_redis(stores: &Stores, finding: &Finding, id: &ConversationId, seq: Seq) -> Result<bool, ArchiveStop> {
    let (link, keys) = (&stores.link, &stores.keys);
    let user = finding.user.as_deref().and_then(|user| UserId::parse(user).ok());
    let named = (finding.user.as_deref().unwrap_or_default(), finding.subject.as_deref().unwrap_or_default());
    match (finding.code, &user) {
        (Code::IndexMissing, Some(user)) => {
            let memberships = stores.archive.conversation_ids_of(user).await?;
            let Some(known) = memberships.into_iter().find(|(known, _)| known == id) else { return Ok(false) };
            touch_index(link, keys, user, &[known], false).await?;
            return Ok(true);
        }
        (Code::IndexStale, Some(user)) => {
            drop_from_list(link, keys, user, id).await?;
            return Ok(true);
        }
        (Code::KeyWithoutMessage, _) => {
            drop_key(link, keys, id, named.0, named.1).await?;
            return Ok(true);
        }
        _ => {}
    }
    let Inspection::Here(hot) = inspect_conversation(link, keys, id).await? else { return Ok(false) };
    match (finding.code, &user) {
        (Code::MemberCount, _) => set_member_count(link, keys, id).await?,
        (Code::MarkBeyondHead, Some(user)) => {
            set_mark(link, keys, id, user.as_str(), hot.head.conversation.head_seq, stores.clock.now()).await?;
        }
        (Code::MarkMovedBack, Some(user)) => {
            let archived = stores.archive.audited(std::slice::from_ref(id)).await?.pop();
            let Some(mark) = archived.and_then(|a| a.marks.get(user.as_str()).copied()) else { return Ok(false) };
            if hot.marks.get(user.as_str()).copied().unwrap_or(0) >= mark {
                return Ok(false);
            }
            set_mark(link, keys, id, user.as_str(), mark, stores.clock.now()).await?;
        }
        (Code::UnreadWrong, _) => {
            let message = message_at(stores, id, &hot, seq).await?;
            set_uncounted(link, keys, id, seq, message.is_some_and(|m| is_uncounted(&m))).await?;
        }
        (Code::MentionWrong, Some(user)) => set_mention(link, keys, id, user, seq, false).await?,
        (Code::MentionMissing, Some(user)) => set_mention(link, keys, id, user, seq, true).await?,
        (Code::RevIndexWrong, _) => set_rev(link, keys, id, seq, hot.messages.get(&seq).map(|m| m.rev)).await?,
        (Code::KeyMissing, _) => {
            let Some(message) = hot.messages.get(&seq) else { return Ok(false) };
            let print = message.fingerprint.as_deref().unwrap_or_default();
            add_key(link, keys, id, named, seq, print).await?;
        }
        _ => return Ok(false),
    }
    Ok(true)
}

async fn message_at(stores: &Stores, id: &ConversationId, hot: &Inspected, seq: Seq) -> Result<Option<Message>, ArchiveStop> {
    match hot.messages.get(&seq) {
        Some(message) => Ok(Some(message.clone())),
        None => Ok(stores.archive.messages_at(id, &[seq]).await?.pop()),
    }
}
