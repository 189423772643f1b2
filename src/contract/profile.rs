//! How users are shown, on the wire.

use serde::{Deserialize, Deserializer, Serialize};
use utoipa::ToSchema;

use super::timestamp::Timestamp;
use crate::domain::ids::{Millis, UserId};
use crate::domain::profile::{Profile as DomainProfile, ProfileChange, parse_name, parse_web_address};
use crate::domain::refusal::FieldError;

/// Name and picture of a user, as far as they are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileFacts {
    /// The name, exactly as told; whoever shows it isolates its direction.
    pub name: Option<String>,
    /// The picture's http or https URL.
    pub avatar_url: Option<String>,
}

impl From<&DomainProfile> for ProfileFacts {
    fn from(profile: &DomainProfile) -> Self {
        Self { name: profile.name.clone(), avatar_url: profile.avatar_url.clone() }
    }
}

/// How a user is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Profile {
    /// Who.
    pub user_id: String,
    /// The name; null when none is known.
    pub name: Option<String>,
    /// The picture; null when none is known.
    pub avatar_url: Option<String>,
    /// When it last changed; told to the service alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub updated_at: Option<Timestamp>,
}

impl Profile {
    /// A profile; with the time of its last change (ms) for those who may know it.
    #[must_use]
    pub fn new(user: &UserId, profile: &DomainProfile, updated_at: Option<Millis>) -> Self {
        let ProfileFacts { name, avatar_url } = profile.into();
        Self { user_id: user.to_string(), name, avatar_url, updated_at: updated_at.map(Timestamp) }
    }
}

/// What to change about a profile. What is left out stays; null clears. A field that was once set here is not filled from tokens any more.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PutProfile {
    /// 1 to 80 characters after trimming, no control characters.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// An http or https URL of at most 2,048 bytes.
    #[serde(default, deserialize_with = "named", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub avatar_url: Option<Option<String>>,
}

impl PutProfile {
    /// The proven change.
    ///
    /// # Errors
    /// Names the first field that cannot be accepted.
    pub fn prove(self) -> Result<ProfileChange, FieldError> {
        let name = self.name.map(|name| name.as_deref().map(parse_name).transpose()).transpose()?;
        let address = |text: &str| parse_web_address(text).map_err(|fault| fault.of("avatar_url"));
        let avatar_url = self.avatar_url.map(|url| url.as_deref().map(address).transpose()).transpose()?;
        Ok(ProfileChange { name, avatar_url })
    }
}

/// A field that stands there, be it null; one that does not is the default.
fn named<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::<String>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_clears_and_absence_leaves() {
        let prove = |json: &str| serde_json::from_str::<PutProfile>(json).map(PutProfile::prove).map_err(|error| error.to_string());
        assert_eq!(prove("{}"), Ok(Ok(ProfileChange::default())));
        assert_eq!(prove(r#"{"name":null}"#), Ok(Ok(ProfileChange { name: Some(None), avatar_url: None })));
        let named = ProfileChange { name: Some(Some("Ann".into())), avatar_url: None };
        assert_eq!(prove(r#"{"name":" Ann "}"#), Ok(Ok(named)));
        assert!(prove(r#"{"nam":"Ann"}"#).is_err());
    }
}
