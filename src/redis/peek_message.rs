//! Looks at one recent message, whoever asks and whatever the state of the conversation: for what is told to nobody's device.

use bytes::Bytes;

use super::error::RedisError;
use super::keys::Keys;
use super::link::Link;
use super::stored_form::parse_window_value;
use crate::domain::ids::{ConversationId, Seq};
use crate::domain::message::Message;

/// The message on this number, if it stands in the window.
///
/// # Errors
/// When Redis cannot be asked or the message not be read.
pub async fn peek_message(link: &Link, keys: &Keys, id: &ConversationId, seq: Seq) -> Result<Option<Message>, RedisError> {
    let window = keys.conversation(id).window;
    let reply = link.command("HGET", &window, vec![Bytes::from(window.clone()), Bytes::from(seq.to_string())]).await?;
    Ok(match reply.present() {
        Some(value) => Some(parse_window_value(id, seq, value.as_str()?)?),
        None => None,
    })
}
