//! Numbers a batch of old messages: the seed from which the product grew, used by the import.

use super::message::BODY_CHARS_MAX;

/// A message that waits for its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unnumbered {
    /// The host's own id.
    pub id: String,
    /// Where it belongs.
    pub conversation: String,
    /// Who wrote it.
    pub sender: String,
    /// The words.
    pub body: String,
    /// When, in milliseconds since 1970 UTC.
    pub at: i64,
}

/// A message with its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbered {
    /// The number, from 1.
    pub seq: i64,
    /// What bears it.
    pub message: Unnumbered,
}

/// Why a batch is refused; nothing of it is numbered then.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AssignError {
    /// The last number given cannot be negative.
    #[error("last must be 0 or more, not {0}")]
    NegativeLast(i64),
    /// The numbers would pass what an integer holds.
    #[error("the numbers would pass 2^53 - 1")]
    TooFar,
    /// A field that must hold something is empty.
    #[error("message {index}: {field} must not be empty")]
    Empty {
        /// Place in the input, from 0.
        index: usize,
        /// Which field.
        field: &'static str,
    },
    /// A body over the limit.
    #[error("message {index}: body has {chars} characters, at most {BODY_CHARS_MAX} are allowed")]
    BodyTooLong {
        /// Place in the input, from 0.
        index: usize,
        /// Its length in characters.
        chars: usize,
    },
    /// The input belongs to more than one conversation.
    #[error("message {index}: belongs to another conversation than the first one")]
    MixedConversations {
        /// Place in the input, from 0.
        index: usize,
    },
    /// A number below 1.
    #[error("seq must be 1 or more, not {0}")]
    SeqNotPositive(i64),
}

/// Sorts a copy by (time, id) and numbers it from `last` + 1 without a gap. The input stays as it was; empty in, empty out.
///
/// # Errors
/// Refuses a negative `last`, an empty id, conversation or sender, a body over 4,000 characters, and mixed conversations.
pub fn assign_seq(last: i64, messages: &[Unnumbered]) -> Result<Vec<Numbered>, AssignError> {
    if last < 0 {
        return Err(AssignError::NegativeLast(last));
    }
    let count = i64::try_from(messages.len()).map_err(|_| AssignError::TooFar)?;
    if last.checked_add(count).is_none_or(|end| end > super::ids::INTEGER_MAX as i64) {
        return Err(AssignError::TooFar);
    }
    for (index, message) in messages.iter().enumerate() {
        check_fields(index, message)?;
        if message.conversation != messages[0].conversation {
            return Err(AssignError::MixedConversations { index });
        }
    }
    let mut sorted = messages.to_vec();
    sorted.sort_by(|a, b| (a.at, &a.id).cmp(&(b.at, &b.id)));
    Ok(sorted.into_iter().zip(last + 1..).map(|(message, seq)| Numbered { seq, message }).collect())
}

/// Checks one numbered message by itself.
///
/// # Errors
/// Refuses each empty field, a body over the limit, and a seq below 1.
pub fn validate(numbered: &Numbered) -> Result<(), AssignError> {
    if numbered.seq <= 0 {
        return Err(AssignError::SeqNotPositive(numbered.seq));
    }
    check_fields(0, &numbered.message)?;
    if numbered.message.body.is_empty() {
        return Err(AssignError::Empty { index: 0, field: "body" });
    }
    Ok(())
}

fn check_fields(index: usize, message: &Unnumbered) -> Result<(), AssignError> {
    for (field, text) in [("id", &message.id), ("conversation", &message.conversation), ("sender", &message.sender)] {
        if text.is_empty() {
            return Err(AssignError::Empty { index, field });
        }
    }
    let chars = message.body.chars().count();
    if chars > BODY_CHARS_MAX {
        return Err(AssignError::BodyTooLong { index, chars });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(id: &str, at: i64) -> Unnumbered {
        Unnumbered { id: id.into(), conversation: "c".into(), sender: "ann".into(), body: "hi".into(), at }
    }

    #[test]
    fn unordered_and_equal_times_are_numbered_by_time_then_id() {
        let input = vec![message("m3", 20), message("m2", 10), message("m1", 10)];
        let before = input.clone();
        let numbered = assign_seq(100, &input).unwrap();
        let got: Vec<_> = numbered.iter().map(|n| (n.message.id.as_str(), n.seq)).collect();
        assert_eq!(got, [("m1", 101), ("m2", 102), ("m3", 103)]);
        assert_eq!(input, before, "the input is untouched");
    }

    #[test]
    fn nothing_in_nothing_out_and_bounds_hold() {
        assert_eq!(assign_seq(5, &[]), Ok(vec![]));
        assert_eq!(assign_seq(-1, &[]), Err(AssignError::NegativeLast(-1)));
        assert_eq!(assign_seq(i64::MAX, &[message("a", 1)]), Err(AssignError::TooFar));
        let mut long = message("a", 1);
        long.body = "中".repeat(4_000);
        assert!(assign_seq(0, std::slice::from_ref(&long)).is_ok());
        long.body.push('中');
        assert_eq!(assign_seq(0, &[long]), Err(AssignError::BodyTooLong { index: 0, chars: 4_001 }));
        let mut other = message("b", 2);
        other.conversation = "d".into();
        assert_eq!(assign_seq(0, &[message("a", 1), other]), Err(AssignError::MixedConversations { index: 1 }));
    }

    #[test]
    fn each_empty_field_is_named() {
        type Blank = fn(&mut Unnumbered);
        let blanks: [(&str, Blank); 3] =
            [("id", |m| m.id.clear()), ("conversation", |m| m.conversation.clear()), ("sender", |m| m.sender.clear())];
        for (field, blank) in blanks {
            let mut bad = message("a", 1);
            blank(&mut bad);
            assert_eq!(assign_seq(0, std::slice::from_ref(&bad)), Err(AssignError::Empty { index: 0, field }));
            assert_eq!(validate(&Numbered { seq: 1, message: bad }), Err(AssignError::Empty { index: 0, field }));
        }
        let mut bad = message("a", 1);
        bad.body.clear();
        assert_eq!(validate(&Numbered { seq: 1, message: bad }), Err(AssignError::Empty { index: 0, field: "body" }));
        for seq in [0, -1] {
            assert_eq!(validate(&Numbered { seq, message: message("a", 1) }), Err(AssignError::SeqNotPositive(seq)));
        }
        assert_eq!(validate(&Numbered { seq: 1, message: message("a", 1) }), Ok(()));
    }
}
