//! What must hold for the settings of webhooks and of the pre-send hook, and what their texts mean.

use std::collections::BTreeSet;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use url::Url;

use super::Settings;
use super::check::{SettingFault, is_loopback_url};
use crate::domain::event::EventType;

/// Shortest secret in bytes, as the Standard Webhooks specification has it.
const SECRET_BYTES_MIN: usize = 24;
/// How a secret begins that is written as receivers' libraries take it: base64 of the key's bytes.
const BASE64_SECRET: &str = "whsec_";

const URL_NAME: &str = "SEQLINE_WEBHOOK_URL";
const SECRETS_NAME: &str = "SEQLINE_WEBHOOK_SECRETS";
const EVENTS_NAME: &str = "SEQLINE_WEBHOOK_EVENTS";
const HOOK_URL_NAME: &str = "SEQLINE_PRE_SEND_HOOK_URL";
const HOOK_DEADLINE_NAME: &str = "SEQLINE_PRE_SEND_HOOK_DEADLINE_MS";
const HOOK_AWAY_NAME: &str = "SEQLINE_PRE_SEND_HOOK_AWAY";

impl Settings {
    /// The keys that sign what goes to the host application.
    ///
    /// # Errors
    /// Names a secret, by its place, that is too short or not in its form.
    pub fn webhook_keys(&self) -> Result<Vec<Vec<u8>>, SettingFault> {
        let key = |(index, secret): (usize, &String)| {
            let place = index + 1;
            let bytes = match secret.strip_prefix(BASE64_SECRET) {
                Some(text) => STANDARD
                    .decode(text)
                    .map_err(|_| SettingFault::new(SECRETS_NAME, format!("number {place} is not base64 after {BASE64_SECRET}")))?,
                None => secret.as_bytes().to_vec(),
            };
            if bytes.len() < SECRET_BYTES_MIN {
                let fault = format!("number {place} has fewer than {SECRET_BYTES_MIN} bytes, so it could be guessed from any webhook");
                return Err(SettingFault::new(SECRETS_NAME, fault));
            }
            Ok(bytes)
        };
        self.webhook_secrets.iter().enumerate().map(key).collect()
    }

    /// The event types that are posted.
    ///
    /// # Errors
    /// Names a word that stands for no event type that could be posted.
    pub fn webhook_types(&self) -> Result<BTreeSet<EventType>, SettingFault> {
        let mut types = BTreeSet::new();
        for word in &self.webhook_events {
            // A resync is about one user's log, and what is not kept is not archived.
            let fits = |kind: &EventType| match word.strip_suffix(".*") {
                Some(family) => kind.as_str().split_once('.').is_some_and(|(first, _)| first == family),
                None => kind.as_str() == word,
            };
            let named: Vec<EventType> =
                EventType::ALL.iter().copied().filter(|kind| kind.is_kept() && *kind != EventType::Resync).filter(fits).collect();
            if named.is_empty() {
                return Err(SettingFault::new(EVENTS_NAME, format!("names {word:?}, which is no type of event that could be posted")));
            }
            types.extend(named);
        }
        Ok(types)
    }
}

/// Refuses what cannot work.
pub(super) fn check_hooks(settings: &Settings) -> Result<(), SettingFault> {
    check_url(URL_NAME, settings.webhook_url.as_deref())?;
    let keys = settings.webhook_keys()?;
    let types = settings.webhook_types()?;
    if settings.webhook_url.is_some() && types.is_empty() {
        return Err(SettingFault::new(EVENTS_NAME, "is empty, so that nothing would be posted"));
    }
    check_url(HOOK_URL_NAME, settings.pre_send_hook_url.as_deref())?;
    for (name, url) in [(URL_NAME, &settings.webhook_url), (HOOK_URL_NAME, &settings.pre_send_hook_url)] {
        if url.is_some() && keys.is_empty() {
            let fault = format!("is missing, and {name} is set: the host application could not tell our calls from anybody's");
            return Err(SettingFault::new(SECRETS_NAME, fault));
        }
    }
    if settings.pre_send_hook_url.is_some() && settings.pre_send_hook_deadline_ms >= settings.request_deadline_ms {
        return Err(SettingFault::new(HOOK_DEADLINE_NAME, "must be below SEQLINE_REQUEST_DEADLINE_MS"));
    }
    if !matches!(settings.pre_send_hook_away.as_str(), "allow" | "refuse") {
        return Err(SettingFault::new(HOOK_AWAY_NAME, "must be allow or refuse"));
    }
    Ok(())
}

fn check_url(name: &'static str, url: Option<&str>) -> Result<(), SettingFault> {
    let Some(text) = url else { return Ok(()) };
    let fits = Url::parse(text).is_ok_and(|url| match url.scheme() {
        "https" => url.has_host(),
        "http" => is_loopback_url(text),
        _ => false,
    });
    if fits { Ok(()) } else { Err(SettingFault::new(name, "must be an https URL, or an http URL on loopback")) }
}
