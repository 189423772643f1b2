//! Web Push: the one door to browsers' push services. What a browser's subscription must look like, how a message is encrypted for it
//! (RFC 8291), how we say who we are (RFC 8292), and the call itself, which reaches public addresses only. This room knows no store:
//! whom to wake, for what, and what an answer means is decided by who calls it.

pub mod deliver;
pub mod encrypt;
pub mod endpoint;
pub mod payload;
pub mod public_address;
pub mod vapid;

use std::time::Duration;

use crate::settings::{SettingFault, Settings};

pub use deliver::{Delivered, Door, Lookup, PushFault, Urgency};
pub use encrypt::BrowserKeys;
pub use endpoint::Endpoint;
pub use vapid::VapidKey;

/// What pushes need; there is none while push is off.
#[derive(Debug)]
pub struct Push {
    /// The call.
    pub door: Door,
    /// Whether loopback addresses are endpoints, too: for tests.
    pub allow_loopback: bool,
    public_key: String,
}

impl Push {
    /// As the settings have it; `None` when they name no key.
    ///
    /// # Errors
    /// What [`Settings::validate`] refuses as well.
    pub fn of(settings: &Settings) -> Result<Option<Self>, SettingFault> {
        let Some(key) = settings.vapid_key()? else { return Ok(None) };
        let public_key = key.public_text();
        let (allow_loopback, limit) = (settings.push_allow_loopback, Duration::from_millis(settings.push_timeout_ms));
        let subject = settings.vapid_subject.clone();
        let door = Door::new(key, subject, limit, allow_loopback, deliver::system_lookup())
            .map_err(|error| SettingFault::new("SEQLINE_VAPID_PRIVATE_KEY", format!("is of no use, pushes cannot be sent: {error}")))?;
        Ok(Some(Self { door, allow_loopback, public_key }))
    }

    /// The public key as browsers take it: base64url of the uncompressed point.
    #[must_use]
    pub fn public_key(&self) -> &str {
        &self.public_key
    }
}
