//! The query of a request, read strictly: numbers are plain digits within bounds, nothing stands twice, nothing unknown is passed over.

use std::borrow::Cow;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use percent_encoding::percent_decode_str;

use super::AppState;
use super::respond::Problem;
use crate::domain::ids::INTEGER_MAX;
use crate::domain::refusal::FieldError;

/// Items on a page when the caller does not say.
pub const LIMIT_DEFAULT: u64 = 50;
/// Most items on a page.
pub const LIMIT_MAX: u64 = 200;

/// A request's query. Take what you know by name, then call [`Query::finish`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// Reads the part after `?`; `+` stands for a space, as forms write it.
    ///
    /// # Errors
    /// 400 when a name stands twice or a value is no UTF-8 or holds U+0000.
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in text.split('&').filter(|p| !p.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let name = decode(name).ok_or_else(|| bad("query", "is no UTF-8"))?;
            let value = decode(value).ok_or_else(|| bad(name.clone(), "must be UTF-8 without U+0000"))?;
            if pairs.iter().any(|(n, _)| *n == name) {
                return Err(bad(name, "stands twice"));
            }
            pairs.push((name, value));
        }
        Ok(Self { pairs })
    }

    /// The text of a parameter, taken out.
    pub fn text(&mut self, name: &str) -> Option<String> {
        let index = self.pairs.iter().position(|(n, _)| n == name)?;
        Some(self.pairs.swap_remove(index).1)
    }

    /// A number of plain digits between `min` and `max`, both included.
    ///
    /// # Errors
    /// 400 naming the parameter.
    pub fn number(&mut self, name: &'static str, min: u64, max: u64) -> Result<Option<u64>, Problem> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let number = text.parse::<u64>().ok().filter(|n| digits && (min..=max).contains(n));
        number.map(Some).ok_or_else(|| bad(name, format!("must be a whole number from {min} to {max}")))
    }

    /// A seq or rev; any whole number that JSON clients read exactly.
    ///
    /// # Errors
    /// 400 naming the parameter.
    pub fn place(&mut self, name: &'static str) -> Result<Option<u64>, Problem> {
        self.number(name, 0, INTEGER_MAX)
    }

    /// `limit`: 1 to 200, 50 when absent.
    ///
    /// # Errors
    /// 400 naming `limit`.
    pub fn limit(&mut self) -> Result<u64, Problem> {
        Ok(self.number("limit", 1, LIMIT_MAX)?.unwrap_or(LIMIT_DEFAULT))
    }

    /// Refuses what nobody took.
    ///
    /// # Errors
    /// 400 naming the first parameter that is left.
    pub fn finish(self) -> Result<(), Problem> {
        match self.pairs.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(bad(name, "is not known here")),
        }
    }
}

/// Proof that a request has no query, for routes that know none.
#[derive(Clone, Copy, Debug)]
pub struct NoQuery;

impl FromRequestParts<AppState> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        Query::parse(parts.uri.query().unwrap_or_default())?.finish().map(|()| Self)
    }
}

/// 400 `invalid_parameter` naming the parameter.
pub fn bad(name: impl Into<Cow<'static, str>>, fault: impl Into<Cow<'static, str>>) -> Problem {
    Problem::invalid_parameter(FieldError::new(name, fault))
}

fn decode(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    let decoded = percent_decode_str(&text).decode_utf8().ok()?;
    (!decoded.contains('\0')).then(|| decoded.into_owned())
}

impl FromRequestParts<AppState> for Query {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        Self::parse(parts.uri.query().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_of(result: Result<impl std::fmt::Debug, Problem>) -> Option<String> {
        result.err().and_then(|p| p.field).map(Cow::into_owned)
    }

    #[test]
    fn limits_are_plain_digits_within_bounds() {
        for text in ["0", "-1", "201", "2147483647", "1e3", "abc", "", "+5", "%2B5", "5.0", "18446744073709551616", "٣", " 5"] {
            let limit = Query::parse(&format!("limit={text}")).and_then(|mut q| q.limit());
            assert_eq!(field_of(limit).as_deref(), Some("limit"), "{text:?}");
        }
        for (text, limit) in [("limit=1", 1), ("limit=200", 200), ("", 50), ("limit=007", 7)] {
            assert_eq!(Query::parse(text).and_then(|mut q| q.limit()), Ok(limit), "{text:?}");
        }
    }

    #[test]
    fn refuses_what_stands_twice_and_what_nobody_knows() {
        assert_eq!(field_of(Query::parse("a=1&a=1")).as_deref(), Some("a"));
        assert_eq!(field_of(Query::parse("a=%FF")).as_deref(), Some("a"));
        assert_eq!(field_of(Query::parse("a=%00")).as_deref(), Some("a"));
        let query = Query::parse("limit=3&lmit=4").map(|mut q| (q.limit(), q.finish()));
        assert!(matches!(query, Ok((Ok(3), Err(p))) if p.field.as_deref() == Some("lmit")));
    }

    #[test]
    fn reads_what_forms_write() {
        let query = Query::parse("q=a+b%26c&&").map(|mut q| (q.text("q"), q.finish()));
        assert_eq!(query, Ok((Some("a b&c".to_owned()), Ok(()))));
    }
}
