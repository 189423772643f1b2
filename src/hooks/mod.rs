//! The host application's own servers: told afterwards what happened (webhooks), and asked beforehand whether a message may be sent (the
//! pre-send hook). The one door to them is [`outside_call`]: signed, bounded in time and size, never redirected. This room knows no
//! store: what is queued, and what an answer means, is decided by who calls it.

pub mod outside_call;
pub mod pre_send;
pub mod signature;
pub mod webhook;

use crate::settings::{SettingFault, Settings};

pub use pre_send::PreSend;
pub use webhook::Webhooks;

/// What is configured of both.
#[derive(Debug, Default)]
pub struct Hooks {
    /// Where events are posted; `None` when that is off.
    pub webhooks: Option<Webhooks>,
    /// Whom to ask before a message is taken; `None` when nobody is asked.
    pub pre_send: Option<PreSend>,
}

impl Hooks {
    /// As the settings have it.
    ///
    /// # Errors
    /// What [`Settings::validate`] refuses as well.
    pub fn of(settings: &Settings) -> Result<Self, SettingFault> {
        Ok(Self { webhooks: Webhooks::of(settings)?, pre_send: PreSend::of(settings)? })
    }
}
