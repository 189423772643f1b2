//! Names of things, proven once at the door and never checked again.
//!
//! A value of one of these types is valid by construction: a handler that takes a [`ConversationId`] needs no second look.

use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uuid::Uuid;

use super::refusal::{FieldError, FieldFault};

/// The number of a message in its conversation, from 1; 0 stands for "before the first".
pub type Seq = u64;
/// A conversation's change counter: shard epoch × 2^32 + n.
pub type Rev = u64;
/// Milliseconds since 1970-01-01 UTC.
pub type Millis = i64;
/// Largest integer that any JSON client reads exactly (2^53 - 1).
pub const INTEGER_MAX: u64 = (1 << 53) - 1;
/// Longest user id and client id in bytes of UTF-8 (contract, Identity and Messages).
pub const ID_BYTES_MAX: usize = 128;
/// Longest business key of a system conversation in characters.
pub const SYSTEM_KEY_CHARS_MAX: usize = 200;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The id as it stands in URLs and JSON.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

text_id! {
    /// A user of the host application: 1 to 128 bytes, no control characters, no `/`, not `.` or `..`; compared bytewise.
    UserId
}
text_id! {
    /// `single:<hex>`, `group:<uuid>` or `system:<key>`; holds only `[A-Za-z0-9._:-]`.
    ConversationId
}
text_id! {
    /// A client's idempotency key, one per send intent: 1 to 128 bytes.
    ClientKey
}

impl UserId {
    /// Proves a user id.
    ///
    /// # Errors
    /// Names the fault when the text is empty, too long, or holds what an id may not hold.
    pub fn parse(text: &str) -> Result<Self, FieldFault> {
        if text.is_empty() {
            return Err(FieldFault::new("must not be empty"));
        }
        if text.len() > ID_BYTES_MAX {
            return Err(FieldFault::new("must be at most 128 bytes of UTF-8"));
        }
        if text.chars().any(char::is_control) || text.contains('/') || text == "." || text == ".." {
            return Err(FieldFault::new("must hold no control character and no '/', and be neither '.' nor '..'"));
        }
        Ok(Self(text.into()))
    }
}

impl ClientKey {
    /// Proves an idempotency key.
    ///
    /// # Errors
    /// Names the fault when the text is empty, longer than 128 bytes, or holds U+0000.
    pub fn parse(text: &str) -> Result<Self, FieldFault> {
        if text.is_empty() {
            return Err(FieldFault::new("must not be empty"));
        }
        if text.len() > ID_BYTES_MAX {
            return Err(FieldFault::new("must be at most 128 bytes of UTF-8"));
        }
        if text.contains('\0') {
            return Err(FieldFault::new("must not hold U+0000"));
        }
        Ok(Self(text.into()))
    }

    /// The time inside a version 7 UUID, or `None` for any other key.
    #[must_use]
    pub fn stamped_at(&self) -> Option<Millis> {
        let uuid = Uuid::try_parse(&self.0).ok()?;
        if uuid.get_version_num() != 7 {
            return None;
        }
        let (seconds, nanos) = uuid.get_timestamp()?.to_unix();
        i64::try_from(seconds).ok().map(|s| s * 1000 + i64::from(nanos / 1_000_000))
    }
}

/// Which of the three families a conversation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Two users, for ever.
    Single,
    /// Members come and go.
    Group,
    /// The host application speaks, members read.
    System,
}

impl Kind {
    /// The word used in JSON, Redis and Postgres.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Group => "group",
            Self::System => "system",
        }
    }

    /// The inverse of [`Kind::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "single" => Some(Self::Single),
            "group" => Some(Self::Group),
            "system" => Some(Self::System),
            _ => None,
        }
    }
}

impl ConversationId {
    /// The one conversation of two users, whichever of them asks: the first 16 bytes of
    /// SHA-256 over `min + 0x00 + max`, ids compared bytewise (contract, Conversations).
    ///
    /// # Errors
    /// Refuses a pair of one and the same user.
    pub fn of_pair(a: &UserId, b: &UserId) -> Result<Self, FieldError> {
        if a == b {
            return Err(FieldError::new("peer", "must be another user than oneself"));
        }
        let (low, high) = if a.as_str().as_bytes() < b.as_str().as_bytes() { (a, b) } else { (b, a) };
        let mut hash = Sha256::new();
        hash.update(low.as_str().as_bytes());
        hash.update([0]);
        hash.update(high.as_str().as_bytes());
        Ok(Self(format!("single:{}", hex::encode(&hash.finalize()[..16])).into()))
    }

    /// A group's id from the UUIDv7 the server made for it.
    #[must_use]
    pub fn of_group(id: Uuid) -> Self {
        Self(format!("group:{}", id.hyphenated()).into())
    }

    /// A system conversation's id from the host's business key.
    ///
    /// # Errors
    /// Refuses a key that is empty, over 200 characters, or outside `[A-Za-z0-9._:-]`.
    pub fn of_system(key: &str) -> Result<Self, FieldError> {
        if key.is_empty() || key.len() > SYSTEM_KEY_CHARS_MAX || !key.bytes().all(is_key_byte) {
            return Err(FieldError::new("key", "must be 1 to 200 characters of A-Z a-z 0-9 . _ : -"));
        }
        Ok(Self(format!("system:{key}").into()))
    }

    /// Reads an id from a URL; `None` when no conversation can have it.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_once(':')?;
        let fits = match Kind::parse(kind)? {
            Kind::Single => rest.len() == 32 && rest.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')),
            Kind::Group => Uuid::try_parse(rest).is_ok_and(|id| id.hyphenated().to_string() == rest),
            Kind::System => !rest.is_empty() && rest.len() <= SYSTEM_KEY_CHARS_MAX && rest.bytes().all(is_key_byte),
        };
        fits.then(|| Self(text.into()))
    }

    /// The family, read off the id.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match self.0.as_bytes().get(..2) {
            Some(b"si") => Kind::Single,
            Some(b"gr") => Kind::Group,
            _ => Kind::System,
        }
    }

    /// The shard that orders this conversation, of `shards` in the installation.
    #[must_use]
    pub fn shard(&self, shards: u16) -> ShardId {
        ShardId(bucket(self.0.as_bytes(), shards))
    }
}

impl UserId {
    /// The partition that keeps this user's log, of `partitions` in the installation.
    #[must_use]
    pub fn partition(&self, partitions: u16) -> PartitionId {
        PartitionId(bucket(self.0.as_bytes(), partitions))
    }
}

/// One of the installation's conversation shards, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u16);

/// One of the installation's user partitions, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionId(pub u16);

fn is_key_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b':' | b'-')
}

/// Spreads names evenly and for ever alike on every node: the first 8 bytes of SHA-256, modulo the count.
fn bucket(name: &[u8], count: u16) -> u16 {
    let digest = Sha256::digest(name);
    let mut first = [0_u8; 8];
    first.copy_from_slice(&digest[..8]);
    let remainder = u64::from_be_bytes(first) % u64::from(count.max(1));
    u16::try_from(remainder).unwrap_or(0)
}
