//! A whole conversation on its way out, for the host application's server and for moderators: everything up to the head of the moment it
//! began, a page at a time, so that neither side holds more than a page.

use super::Stores;
use super::list_members::list_members;
use super::read_conversation::view;
use super::read_messages::{Place, page};
use super::show_messages::show_messages;
use crate::domain::conversation::Conversation;
use crate::domain::ids::{ConversationId, Seq, UserId};
use crate::domain::membership::{Member, Reader};
use crate::domain::permission::Standing;
use crate::domain::quote::ShownMessage;
use crate::domain::refusal::Refusal;

/// Messages read at once: 1.6 MB when each has the longest body.
const PAGE: usize = 100;
/// Members read at once.
const MEMBERS_PAGE: usize = 1_000;

/// An export under way.
#[derive(Clone, Debug)]
pub struct Export {
    by: UserId,
    standing: Standing,
    /// The conversation as it was when the export began.
    pub conversation: Conversation,
    /// Its members then, by user id.
    pub members: Vec<Member>,
    /// The last seq that was given.
    at: Seq,
    /// Messages given so far.
    pub given: u64,
}

/// Begins an export of what stands above `after`, up to the head of now. What is edited or deleted meanwhile comes as it is when its turn comes.
///
/// # Errors
/// [`Refusal::Forbidden`] for who is neither; [`Refusal::NotFound`]; [`Refusal::Unavailable`].
pub async fn begin_export(
    stores: &Stores,
    by: &UserId,
    standing: Option<Standing>,
    id: &ConversationId,
    after: Seq,
) -> Result<Export, Refusal> {
    let standing = standing.ok_or(Refusal::Forbidden("only the service and moderators take conversations out"))?;
    let reader = Reader::of_everything(by, standing);
    let conversation = view(stores, reader, id).await?.conversation;
    let mut members: Vec<Member> = Vec::new();
    loop {
        let (more, go_on) = list_members(stores, reader, id, members.last().map(|member| &member.user), MEMBERS_PAGE).await?;
        members.extend(more);
        if !go_on {
            return Ok(Export { by: by.clone(), standing, conversation, members, at: after, given: 0 });
        }
    }
}

/// The next messages in ascending seq; none when all were given.
///
/// # Errors
/// [`Refusal::Unavailable`] when a store that must be asked is away.
pub async fn next_messages(stores: &Stores, export: &mut Export) -> Result<Vec<ShownMessage>, Refusal> {
    let (id, head) = (&export.conversation.id, export.conversation.head_seq);
    if export.at >= head {
        return Ok(Vec::new());
    }
    let reader = Reader::of_everything(&export.by, export.standing);
    let mut messages = page(stores, reader, id, Place::After(export.at), PAGE).await?.messages;
    messages.retain(|message| message.seq <= head);
    let mut shown = show_messages(stores, reader, id, messages).await?;
    // It is nobody's view: no reaction is "mine".
    shown.iter_mut().for_each(|message| message.reader = None);
    export.at = shown.last().map_or(head, |last| last.message.seq);
    export.given += shown.len() as u64;
    Ok(shown)
}
