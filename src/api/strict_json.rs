//! JSON bodies, read strictly. What Postgres would refuse (U+0000, lone surrogates) is refused here: behind this door it is acknowledged.
//!
//! 400 is for what is not JSON at all, 422 for JSON with a field that cannot be accepted. Which of the two is decided by the whole
//! body: a lone surrogate after an unknown field is still 400.

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, Request};
use axum::http::HeaderMap;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::error::Category;

use super::AppState;
use super::respond::{Code, Problem};
use crate::domain::refusal::FieldError;

/// A body that is refused at once when it cannot be accepted.
#[derive(Clone, Debug)]
pub struct StrictJson<T>(pub T);

/// A body whose 422 the handler holds back until it knows that the caller may learn it: for who is no member, 404 comes first.
/// What is no JSON, too large or of another media type is refused at once.
#[derive(Clone, Debug)]
pub struct DeferredJson<T>(pub Result<T, Problem>);

impl<T: DeserializeOwned> FromRequest<AppState> for StrictJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let body = read_body(request, state).await?;
        parse(&body).map(Self)
    }
}

impl<T: DeserializeOwned> FromRequest<AppState> for DeferredJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &AppState) -> Result<Self, Problem> {
        let body = read_body(request, state).await?;
        match parse(&body) {
            Err(problem) if problem.status != 422 => Err(problem),
            parsed => Ok(Self(parsed)),
        }
    }
}

async fn read_body(request: Request, state: &AppState) -> Result<Bytes, Problem> {
    let bytes_max = state.settings.body_bytes_max;
    // Before the deadline of the whole request, whose 503 would say that something of ours is away.
    let within = Duration::from_millis(state.settings.request_deadline_ms / 5 * 4);
    check_media_type(request.headers())?;
    let too_large = || Problem::new(Code::TooLarge, format!("The body may have at most {bytes_max} bytes."));
    let announced = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<u64>().ok());
    if announced.is_some_and(|n| n > bytes_max as u64) {
        return Err(too_large());
    }
    let body: Body = request.into_body();
    let Ok(collected) = tokio::time::timeout(within, Limited::new(body, bytes_max).collect()).await else {
        return Err(Problem::new(Code::MalformedJson, "The body did not arrive in time."));
    };
    match collected {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        // The client went away or broke the transfer; nobody will read this.
        Err(_) => Err(Problem::new(Code::MalformedJson, "The body did not arrive whole.")),
    }
}

fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let value = headers.get(CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    let mut parts = value.split(';').map(str::trim);
    let json = parts.next().is_some_and(|t| t.eq_ignore_ascii_case("application/json"));
    let utf8 =
        parts.filter_map(|p| p.split_once('=')).filter(|(name, _)| name.trim().eq_ignore_ascii_case("charset")).all(|(_, charset)| {
            let charset = charset.trim().trim_matches('"');
            charset.eq_ignore_ascii_case("utf-8") || charset.eq_ignore_ascii_case("utf8")
        });
    let plain = headers.get_all(CONTENT_ENCODING).iter().all(|v| v.as_bytes().eq_ignore_ascii_case(b"identity"));
    if json && utf8 && plain {
        return Ok(());
    }
    Err(Problem::new(Code::UnsupportedMediaType, "Send JSON in UTF-8, not compressed, with 'Content-Type: application/json'."))
}

/// Reads a body.
///
/// # Errors
/// 400 `malformed_json`, 422 `unknown_field` or `invalid_field` with the field's path.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| malformed("it is not UTF-8"))?;
    // serde would also read a struct from an array.
    if !text.trim_start_matches([' ', '\t', '\r', '\n']).starts_with('{') {
        return Err(malformed("it must be a JSON object"));
    }
    if has_nul_escape(text) {
        let value = parse_any(text)?;
        let field = path_of_nul(&value).unwrap_or_default();
        return Err(Problem::invalid_field(FieldError::new(field, "must not hold U+0000")));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let mut track = serde_path_to_error::Track::new();
    match T::deserialize(serde_path_to_error::Deserializer::new(&mut reader, &mut track)) {
        Ok(value) => {
            reader.end().map_err(|_| malformed("something follows the object"))?;
            Ok(value)
        }
        Err(error) => {
            // Of an enum serde also calls sound JSON of another type a syntax error; only what no reader takes is malformed.
            parse_any(text)?;
            let sentence = if error.classify() == Category::Data { error.to_string() } else { "cannot be accepted".to_owned() };
            Err(field_problem(&track.path().to_string(), &sentence))
        }
    }
}

fn parse_any(text: &str) -> Result<Value, Problem> {
    serde_json::from_str(text).map_err(|error| malformed(&place_of(&error)))
}

fn malformed(why: &str) -> Problem {
    Problem::new(Code::MalformedJson, format!("The body cannot be read: {why}."))
}

/// serde_json's own sentence names line and column and what was expected, never what was found in the text.
fn place_of(error: &serde_json::Error) -> String {
    error.to_string()
}

fn field_problem(path: &str, message: &str) -> Problem {
    // serde writes "unknown field `x`, expected …", "missing field `x`" and "duplicate field `x`", then " at line 1 column 2".
    let message = message.rsplit_once(" at line ").map_or(message, |(sentence, _)| sentence);
    let named = |prefix: &str| message.strip_prefix(prefix).and_then(|rest| rest.split_once('`')).map(|(name, _)| name);
    let join = |name: &str| match path.rsplit_once('.') {
        _ if path == "." || path == name => name.to_owned(),
        Some((_, last)) if last == name => path.to_owned(),
        _ => format!("{path}.{name}"),
    };
    if let Some(name) = named("unknown field `") {
        let field = join(name);
        return Problem::new(Code::UnknownField, format!("'{field}' is not a field of this request.")).of_field(field);
    }
    if let Some(name) = named("missing field `") {
        return Problem::invalid_field(FieldError::new(join(name), "is missing"));
    }
    if let Some(name) = named("duplicate field `") {
        return Problem::invalid_field(FieldError::new(join(name), "stands twice"));
    }
    let field = if path == "." { String::new() } else { path.to_owned() };
    Problem::invalid_field(FieldError::new(field, describe(message)))
}

/// Turns serde's "invalid type: integer `5`, expected a string" into "must be a string"; other sentences are our own.
fn describe(message: &str) -> Cow<'static, str> {
    let foreign = ["invalid type", "invalid value", "invalid length", "unknown variant"].iter().any(|start| message.starts_with(start));
    match message.split_once(", expected ") {
        Some((_, expected)) if foreign => Cow::Owned(format!("must be {}", in_words(expected))),
        _ => Cow::Owned(message.to_owned()),
    }
}

/// The types that serde names by their Rust names, in words.
fn in_words(expected: &str) -> String {
    match expected {
        "u64" => "a whole number that is not negative".to_owned(),
        "a sequence" => "a list".to_owned(),
        other => other.replace('`', "'"),
    }
}

/// Whether some string holds the escape of U+0000. Raw control characters are no JSON, so the escape is the only way to write it.
fn has_nul_escape(text: &str) -> bool {
    let bytes = text.as_bytes();
    let mut at = 0;
    while let Some(offset) = bytes.get(at..).and_then(|rest| rest.iter().position(|b| *b == b'\\')) {
        let escape = at + offset;
        if bytes.get(escape + 1..escape + 6) == Some(b"u0000") {
            return true;
        }
        at = escape + 2;
    }
    false
}

fn path_of_nul(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => text.contains('\0').then(String::new),
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(i, item)| path_of_nul(item).map(|rest| join_path(&format!("[{i}]"), &rest)))
        }
        Value::Object(fields) => fields.iter().find_map(|(name, item)| {
            if name.contains('\0') {
                return Some(name.replace('\0', "\u{FFFD}"));
            }
            path_of_nul(item).map(|rest| join_path(name, &rest))
        }),
        _ => None,
    }
}

fn join_path(head: &str, rest: &str) -> String {
    if rest.is_empty() || rest.starts_with('[') { format!("{head}{rest}") } else { format!("{head}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::conversation::{CreateConversation, MarkRead};
    use crate::contract::new_message::SendMessage;

    fn refused<T: DeserializeOwned + std::fmt::Debug>(body: impl AsRef<[u8]>) -> (u16, &'static str, Option<String>) {
        match parse::<T>(body.as_ref()) {
            Ok(value) => panic!("accepted as {value:?}"),
            Err(problem) => (problem.status, problem.code.as_str(), problem.field.map(Cow::into_owned)),
        }
    }

    #[test]
    fn what_is_not_json_is_400() {
        for body in [
            &b""[..],
            b" ",
            b"{",
            b"null",
            b"[]",
            b"\"x\"",
            br#"["k","text"]"#,
            b"{'body':'x'}",
            br#"{"body":"x",}"#,
            br#"{"body":"x"} x"#,
            br#"{"body":"\ud83c"}"#,
            br#"{"body":"\udf08\ud83c"}"#,
            br#"{"body":"a\ud83cb"}"#,
            br#"{"media":["\ud83c"]}"#,
            br#"{"nobody":1,"body":"\ud83c"}"#,
            br#"{"nobody":"\ud83c"}"#,
            b"{\"body\":\"\xff\"}",
            b"{\"body\":\"\xed\xa0\xbc\"}",
            b"{\"body\":\"a\x00b\"}",
            b"{\"body\":\"a\nb\"}",
            br#"{"body":NaN}"#,
            b"\xef\xbb\xbf{}",
        ] {
            let (status, code, _) = refused::<SendMessage>(body);
            assert_eq!((status, code), (400, "malformed_json"), "{}", String::from_utf8_lossy(body));
        }
        let deep = format!(r#"{{"media":{}{}}}"#, "[".repeat(5_000), "]".repeat(5_000));
        assert_eq!(refused::<SendMessage>(deep).1, "malformed_json");
    }

    #[test]
    fn fields_are_named() {
        let unknown =
            |body: &str, field: &str| assert_eq!(refused::<SendMessage>(body), (422, "unknown_field", Some(field.into())), "{body}");
        unknown(r#"{"bdoy":"x"}"#, "bdoy");
        unknown(r#"{"body":"x","seq":1}"#, "seq");
        unknown(r#"{"a b":1}"#, "a b");
        let invalid =
            |body: &str, field: &str| assert_eq!(refused::<SendMessage>(body), (422, "invalid_field", Some(field.into())), "{body}");
        invalid(r#"{"body":5}"#, "body");
        invalid(r#"{"body":{"a":1}}"#, "body");
        invalid(r#"{"kind":"poem"}"#, "kind");
        invalid(r#"{"client_sent_at":"yesterday"}"#, "client_sent_at");
        invalid(r#"{"client_sent_at":1764500000}"#, "client_sent_at");
        invalid(r#"{"body":"x","body":"y"}"#, "body");
        invalid(r#"{"body":"a\u0000b"}"#, "body");
        invalid(r#"{"client_id":"\u0000"}"#, "client_id");
        invalid(r#"{"share":{"type":"a","id":["x","\u0000"]}}"#, "share.id[1]");
        assert_eq!(
            refused::<CreateConversation>(r#"{"kind":"group","members":["a",5]}"#),
            (422, "invalid_field", Some("members[1]".into()))
        );
        assert_eq!(refused::<CreateConversation>(r#"{"peer":"a"}"#), (422, "invalid_field", Some("kind".into())));
        for body in [
            r#"{"seq":-1}"#,
            r#"{"seq":"5"}"#,
            r#"{"seq":1.5}"#,
            r#"{"seq":1e400}"#,
            r#"{"seq":18446744073709551616}"#,
            r#"{"seq":null}"#,
            "{}",
        ] {
            let (status, _, field) = refused::<MarkRead>(body);
            assert!(matches!((status, field.as_deref()), (422, Some("seq")) | (400, None)), "{body}: {status} {field:?}");
        }
    }

    #[test]
    fn an_escaped_backslash_is_not_an_escape() {
        let read = parse::<SendMessage>(br#"{"body":"\\u0000 \\\\ \u00e9 \ud83c\udf08"}"#).map(|m| m.body);
        assert_eq!(read, Ok(Some("\\u0000 \\\\ \u{e9} \u{1F308}".into())));
        assert_eq!(refused::<SendMessage>(br#"{"body":"\\\u0000"}"#).1, "invalid_field");
    }

    #[test]
    fn a_number_beyond_what_clients_read_exactly_is_clamped() {
        assert_eq!(parse::<MarkRead>(br#"{"seq":9007199254740993}"#).map(|m| m.seq), Ok((1 << 53) - 1));
    }

    #[test]
    fn sentences_hold_nothing_of_the_text() {
        for body in [r#"{"body":{"secret":1}}"#, r#"{"kind":"secret"}"#, r#"{"client_sent_at":"secret"}"#, r#"{"body":"secret"x}"#] {
            let detail = parse::<SendMessage>(body.as_bytes()).map_err(|p| p.detail);
            assert!(detail.as_ref().is_err_and(|d| !d.contains("secret")), "{detail:?}");
        }
    }
}
