//! What is wrong with a request is told to those who may know that the conversation exists.

use super::AppState;
use super::respond::Problem;
use crate::actions::read_conversation::view;
use crate::domain::ids::ConversationId;
use crate::domain::membership::Reader;

/// What was read of a request, or what is wrong with it: for who is no member that is 404, whatever the fault.
///
/// # Errors
/// The fault itself for members; what [`view`] refuses for everybody else.
pub async fn told_to_members<'a, T, E: Into<Problem>>(
    state: &AppState,
    reader: impl Into<Reader<'a>>,
    id: &ConversationId,
    read: Result<T, E>,
) -> Result<T, Problem> {
    match read {
        Ok(read) => Ok(read),
        Err(fault) => {
            view(&state.stores, reader, id).await?;
            Err(fault.into())
        }
    }
}
