//! A caller whose token has been proven.

use crate::domain::ids::{Millis, UserId};
use crate::domain::membership::Reader;

/// How far clocks may disagree, in milliseconds: the same for requests and for ending streams.
pub const LEEWAY_MS: Millis = 30_000;

/// What a token lets its bearer do beyond what every user may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scopes {
    /// One of the host application's servers.
    pub service: bool,
    /// A moderator.
    pub admin: bool,
}

impl Scopes {
    /// Reads the claim `scope`: words apart by spaces; words that mean nothing here are the host's own.
    #[must_use]
    pub fn parse(claim: &str) -> Self {
        let mut scopes = Self::default();
        for word in claim.split(' ') {
            match word {
                "service" => scopes.service = true,
                "admin" => scopes.admin = true,
                _ => {}
            }
        }
        scopes
    }
}

/// Who is calling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The user.
    pub user: UserId,
    /// Further rights.
    pub scopes: Scopes,
    /// The device that the token was made for.
    pub device: Option<String>,
    /// When the token expires, without leeway, ms.
    pub expires_at: Millis,
    /// Name shown to others.
    pub name: Option<String>,
    /// Picture shown to others, a URL.
    pub picture: Option<String>,
}

impl Caller {
    /// The first moment at which the token counts for nothing any more, leeway included, ms.
    #[must_use]
    pub fn over_at(&self) -> Millis {
        self.expires_at.saturating_add(LEEWAY_MS)
    }

    /// The caller as one who reads.
    #[must_use]
    pub fn reader(&self) -> Reader<'_> {
        Reader::caller(&self.user, self.scopes.service)
    }

    /// Whether the token counts for nothing any more.
    #[must_use]
    pub fn is_over(&self, now: Millis) -> bool {
        now >= self.over_at()
    }
}
