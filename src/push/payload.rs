//! What a push says, small enough for every push service: a preview is cut, and only between characters as people count them.

use unicode_segmentation::UnicodeSegmentation;

use crate::contract::push::{PushMessage, PushPayload};
use crate::contract::timestamp::Timestamp;
use crate::domain::conversation::Unread;
use crate::domain::ids::{ConversationId, Seq};
use crate::domain::message::Message;

/// Largest text before it is encrypted, in bytes: with what encryption adds well below the 4,096 that services take.
pub const TEXT_BYTES_MAX: usize = 2_900;
/// Longest preview in grapheme clusters: no device shows more.
const PREVIEW_CLUSTERS_MAX: usize = 240;
/// What stands at the end of a preview that was cut.
const ELLIPSIS: &str = "…";
/// The only type there is.
const MESSAGE: &str = "message";

/// What a push is about.
#[derive(Clone, Debug, PartialEq)]
pub struct PushWords {
    /// Where.
    pub conversation: ConversationId,
    /// The newest message that the user has to be told of.
    pub seq: Seq,
    /// Unread messages there.
    pub unread: Unread,
    /// Unread messages that name the user.
    pub mentions: u64,
    /// What was said, for who wants to see it.
    pub preview: Option<Preview>,
}

/// What was said, and by whom.
#[derive(Clone, Debug, PartialEq)]
pub struct Preview {
    /// What the conversation is called by its reader.
    pub title: String,
    /// What the sender is called.
    pub sender_name: String,
    /// The words.
    pub words: String,
    /// The message.
    pub message: Message,
}

impl PushWords {
    /// As JSON, small enough to be sent.
    #[must_use]
    pub fn into_text(self) -> Vec<u8> {
        let message = self.preview.map(|Preview { title, sender_name, words, message }| PushMessage {
            id: message.id,
            title,
            sender: message.sender.to_string(),
            sender_name,
            kind: message.kind.into(),
            preview: words,
            created_at: Timestamp(message.created_at),
        });
        text_of(PushPayload {
            r#type: MESSAGE.to_owned(),
            conversation_id: self.conversation.to_string(),
            seq: self.seq,
            unread: self.unread.count,
            unread_more: self.unread.more,
            mentions: self.mentions,
            message,
        })
    }
}

/// The payload as JSON, its preview cut so that all of it fits.
fn text_of(mut payload: PushPayload) -> Vec<u8> {
    let preview = payload.message.as_mut().map(|message| std::mem::take(&mut message.preview)).unwrap_or_default();
    let left = TEXT_BYTES_MAX.saturating_sub(serde_json::to_vec(&payload).map_or(0, |json| json.len()));
    if let Some(message) = &mut payload.message {
        message.preview = cut(&preview, left);
    }
    // A struct of strings and numbers always serialises.
    serde_json::to_vec(&payload).unwrap_or_default()
}

/// As many whole clusters of the beginning of a text as fit, as JSON writes them, into so many bytes.
fn cut(text: &str, bytes_max: usize) -> String {
    let written = |part: &str| serde_json::to_string(part).map_or(usize::MAX, |json| json.len() - 2);
    let (mut kept, mut bytes) = (0, 0);
    for (count, (at, cluster)) in text.grapheme_indices(true).enumerate() {
        bytes += written(cluster);
        if count >= PREVIEW_CLUSTERS_MAX || bytes + ELLIPSIS.len() > bytes_max {
            return format!("{}{ELLIPSIS}", &text[..kept]);
        }
        kept = at + cluster.len();
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::push::encrypt::{BODY_BYTES_MAX, OVERHEAD_BYTES};

    fn preview_of(body: &str) -> (String, usize) {
        let message = PushMessage {
            id: uuid::Uuid::nil(),
            title: "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}".repeat(26),
            sender: "\u{1}".repeat(128),
            sender_name: "名".repeat(80),
            kind: crate::contract::message::MessageKind::Text,
            preview: body.to_owned(),
            created_at: Timestamp(1_764_500_000_000),
        };
        let conversation_id = format!("system:{}", "k".repeat(200));
        let payload = PushPayload {
            r#type: "message".into(),
            conversation_id,
            seq: 1 << 52,
            unread: 1_000,
            unread_more: true,
            mentions: 1_000,
            message: Some(message),
        };
        let text = text_of(payload);
        let read: PushPayload = serde_json::from_slice(&text).unwrap();
        (read.message.unwrap().preview, text.len())
    }

    #[test]
    fn whatever_was_said_it_fits_and_is_cut_between_characters() {
        const { assert!(TEXT_BYTES_MAX + OVERHEAD_BYTES <= 3_010 && 3_010 < BODY_BYTES_MAX) };
        let family = "\u{1F468}\u{200D}\u{1F469}\u{200D}\u{1F467}";
        for cluster in ["x", "中", "\u{1F600}", family, "e\u{301}", "\n", "\"", "\u{1}", "\u{1F1E8}\u{1F1F3}"] {
            let (preview, bytes) = preview_of(&cluster.repeat(4_000));
            assert!(bytes <= TEXT_BYTES_MAX, "{bytes} {cluster:?}");
            let kept = preview.strip_suffix(ELLIPSIS).unwrap();
            assert!(kept.len() >= cluster.len() * 20, "{cluster:?} {}", kept.len());
            assert_eq!(kept.replace(cluster, ""), "", "{cluster:?}");
        }
        assert_eq!(preview_of("short").0, "short");
        assert_eq!(preview_of(&"x".repeat(240)).0, "x".repeat(240));
        // One character that people see as one and that fits nowhere.
        assert_eq!(preview_of(&format!("ab{}", "\u{301}".repeat(3_900))).0, "a…");
    }
}
