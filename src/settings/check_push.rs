//! What must hold for the settings of Web Push.

use super::Settings;
use super::check::SettingFault;
use crate::push::vapid::{VapidKey, check_subject};

const KEY_NAME: &str = "SEQLINE_VAPID_PRIVATE_KEY";
const SUBJECT_NAME: &str = "SEQLINE_VAPID_SUBJECT";

impl Settings {
    /// The key pair that pushes are signed with; `None` when push is off.
    ///
    /// # Errors
    /// When the key, or the file that holds it, cannot be read.
    pub fn vapid_key(&self) -> Result<Option<VapidKey>, SettingFault> {
        let read = self.vapid_private_key.as_deref().map(VapidKey::read).transpose();
        read.map_err(|fault| SettingFault::new(KEY_NAME, fault.to_string()))
    }
}

/// Refuses what cannot work.
pub(super) fn check_push(settings: &Settings) -> Result<(), SettingFault> {
    let key = settings.vapid_key()?;
    match settings.vapid_subject.as_deref() {
        Some(subject) => check_subject(subject).map_err(|fault| SettingFault::new(SUBJECT_NAME, fault)),
        // Where nothing leaves this machine, nobody has to be written to.
        None if key.is_none() || settings.push_allow_loopback => Ok(()),
        None => {
            let fault = format!("is missing, and {KEY_NAME} is set: push services want to know whom to write to when something is wrong");
            Err(SettingFault::new(SUBJECT_NAME, fault))
        }
    }
}
