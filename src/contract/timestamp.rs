//! Times on the wire: RFC 3339, UTC, milliseconds, e.g. `2026-11-30T15:54:00.123Z`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Serialize, Serializer};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{RefOr, Schema as AnySchema};

use crate::domain::ids::Millis;

/// A moment, in milliseconds since 1970 UTC; written as RFC 3339 text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(pub Millis);

/// The first and the last millisecond that four-digit years can write.
const YEAR_0: Millis = -62_167_219_200_000;
const YEAR_9999_END: Millis = 253_402_300_799_999;

impl Timestamp {
    /// Reads RFC 3339 text with any offset; finer parts than milliseconds are cut off. `None` when it is not such text.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let moment = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        Some(Self(i64::try_from(moment.unix_timestamp_nanos().div_euclid(1_000_000)).ok()?))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.clamp(YEAR_0, YEAR_9999_END);
        let moment = OffsetDateTime::from_unix_timestamp(ms.div_euclid(1000)).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (date, clock) = (moment.date(), moment.time());
        write!(
            f,
            "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
            date.year(),
            u8::from(date.month()),
            date.day(),
            clock.hour(),
            clock.minute(),
            clock.second(),
            ms.rem_euclid(1000)
        )
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).ok_or_else(|| D::Error::custom("must be a time in RFC 3339, e.g. 2026-11-30T15:54:00.123Z"))
    }
}

impl utoipa::PartialSchema for Timestamp {
    fn schema() -> RefOr<AnySchema> {
        RefOr::T(Schema::Object(
            ObjectBuilder::new()
                .schema_type(Type::String)
                .format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
                .description(Some("RFC 3339, UTC, milliseconds"))
                .examples([serde_json::json!("2026-11-30T15:54:00.123Z")])
                .build(),
        ))
    }
}

impl utoipa::ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_milliseconds_and_reads_them_back() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (1_764_500_000_007, "2025-11-30T10:53:20.007Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        ] {
            assert_eq!(Timestamp(ms).to_string(), text);
            assert_eq!(Timestamp::parse(text), Some(Timestamp(ms)));
        }
    }

    #[test]
    fn reads_other_offsets_and_refuses_other_texts() {
        assert_eq!(Timestamp::parse("2025-11-30T12:53:20.0079+02:00"), Some(Timestamp(1_764_500_000_007)));
        for text in ["", "yesterday", "2025-11-30", "2025-11-30T10:53:20", "1764500000007", "2025-13-30T10:53:20Z"] {
            assert_eq!(Timestamp::parse(text), None, "{text}");
        }
    }

    #[test]
    fn never_writes_a_year_of_five_digits() {
        assert_eq!(Timestamp(i64::MAX).to_string(), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp(i64::MIN).to_string(), "0000-01-01T00:00:00.000Z");
    }
}
