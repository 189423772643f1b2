//! What every action works on.

use std::sync::Arc;

use super::name_conversations::FirstMembers;
use super::note_claims::Claims;
use super::open_epoch::Openings;
use super::read_profiles::{PROFILES_LIVE, PROFILES_MAX};
use super::send_lanes::SendLanes;
use super::short_memory::ShortMemory;
use super::show_shares::{SHARES_LIVE, SHARES_MAX};
use crate::clock::Clock;
use crate::domain::ids::UserId;
use crate::domain::message::Share;
use crate::domain::profile::Profile;
use crate::domain::rate_limit::Rate;
use crate::domain::refusal::Refusal;
use crate::domain::share::ShareFacts;
use crate::hooks::Hooks;
use crate::media::{MediaRoom, ObjectError};
use crate::postgres::{Archive, ArchiveError};
use crate::push::Push;
use crate::redis::error::RedisError;
use crate::redis::keys::Keys;
use crate::redis::link::{Link, LinkError};
use crate::settings::Settings;

/// The two stores and what belongs to them; one per process, shared.
#[derive(Debug)]
pub struct Stores {
    /// The live state.
    pub link: Link,
    /// Its key names.
    pub keys: Keys,
    /// The archive and the records.
    pub archive: Archive,
    /// Pictures; none are taken without it.
    pub media: Option<MediaRoom>,
    /// The settings.
    pub settings: Arc<Settings>,
    /// The clock.
    pub clock: Clock,
    /// The host application's own servers.
    pub hooks: Hooks,
    /// The way to browsers' push services; `None` while push is off.
    pub push: Option<Push>,
    /// Where sends of one shard gather while an earlier call is under way.
    pub(crate) lanes: SendLanes,
    /// Who opens a shard's new epoch.
    pub(crate) openings: Openings,
    /// What tokens claim about their bearers, on its way to the archive.
    pub(crate) claims: Claims,
    /// Profiles as they were a moment ago.
    pub(crate) profiles: ShortMemory<UserId, Profile>,
    /// What messages share, as it was a moment ago.
    pub(crate) shares: ShortMemory<Share, ShareFacts>,
    /// Whom groups without a title are called after.
    pub(crate) first_members: FirstMembers,
}

impl Stores {
    /// Puts the stores together.
    #[must_use]
    pub fn new(link: Link, archive: Archive, media: Option<MediaRoom>, settings: Arc<Settings>) -> Arc<Self> {
        let keys = Keys { shards: settings.shards, partitions: settings.partitions };
        let clock = Clock::with_offset(settings.clock_offset_ms);
        let rate = Rate::of(settings.conversation_sends_per_second, settings.conversation_sends_burst);
        let lanes = SendLanes::new(link.clone(), keys, clock, settings.outbox_max_entries, rate);
        let profiles = ShortMemory::new(PROFILES_MAX, PROFILES_LIVE);
        let shares = ShortMemory::new(SHARES_MAX, SHARES_LIVE);
        let (claims, first_members, openings) = (Claims::new(), FirstMembers::new(), Openings::new(settings.shards));
        let hooks = Hooks::of(&settings).unwrap_or_else(|fault| {
            // Not reached by a process: its settings were proven before.
            tracing::error!(%fault, "nothing is posted to the host application");
            Hooks::default()
        });
        let push = Push::of(&settings).unwrap_or_else(|fault| {
            tracing::error!(%fault, "nothing is pushed");
            None
        });
        Arc::new(Self {
            link,
            keys,
            archive,
            media,
            settings,
            clock,
            hooks,
            push,
            lanes,
            openings,
            claims,
            profiles,
            shares,
            first_members,
        })
    }
}

impl Stores {
    /// Where pictures are.
    ///
    /// # Errors
    /// [`Refusal::Unavailable`] when the settings name no place for them.
    pub fn media(&self) -> Result<&MediaRoom, Refusal> {
        self.media.as_ref().ok_or(Refusal::Unavailable("there is no place for pictures"))
    }
}

impl From<ObjectError> for Refusal {
    fn from(error: ObjectError) -> Self {
        match &error {
            // What has a row has an object, unless somebody else took it away.
            ObjectError::Missing => tracing::error!("a picture's bytes are not where they were put"),
            ObjectError::Unavailable(_) => tracing::warn!(error = %error, "pictures cannot be reached"),
        }
        Self::Unavailable("pictures cannot be reached")
    }
}

impl From<RedisError> for Refusal {
    fn from(error: RedisError) -> Self {
        match &error {
            RedisError::Link(LinkError::OutOfMemory) => return Self::Overloaded,
            RedisError::Link(LinkError::Refused(_)) | RedisError::Unreadable(_) => {
                tracing::error!(error = %error, "redis answered what it should not");
            }
            RedisError::Link(_) => tracing::debug!(error = %error, "redis is away"),
        }
        Self::Unavailable("the live store cannot be reached")
    }
}

impl From<ArchiveError> for Refusal {
    fn from(error: ArchiveError) -> Self {
        match &error {
            ArchiveError::Unavailable(_) => tracing::debug!(error = %error, "postgres is away"),
            _ => tracing::error!(error = %error, "postgres answered what it should not"),
        }
        Self::Unavailable("the archive cannot be reached")
    }
}
