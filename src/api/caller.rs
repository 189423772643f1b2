//! The caller, proven from a request: a header, or a cookie when the settings name one. Never the address: addresses end up in logs.

use axum::extract::FromRequestParts;
use axum::http::header::{AUTHORIZATION, COOKIE, ORIGIN};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Method};

use super::AppState;
use super::respond::{Code, Problem};
use crate::actions::note_claims::note_claims;
use crate::identity::{Caller, TokenFault};
use crate::metrics;

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        prove_caller(state, &parts.method, &parts.headers).await
    }
}

/// Proves the caller of a request with this method and these headers.
///
/// # Errors
/// 401 without a good token; 403 when a cookie comes with a write from a foreign origin; 503 while no key set could be loaded.
pub async fn prove_caller(state: &AppState, method: &Method, headers: &HeaderMap) -> Result<Caller, Problem> {
    let proven = match token_of(headers, state.settings.jwt_cookie.as_deref()) {
        Ok(Found::Header(token)) => state.keyring.prove(token, state.clock.now()).await,
        Ok(Found::Cookie(token)) => {
            // A browser sends cookies along with requests that other sites make; a header it does not.
            if !method.is_safe() && !is_allowed_origin(headers, &state.settings.allowed_origins) {
                return Err(Problem::new(Code::Forbidden, "A write with a cookie must come from an allowed origin."));
            }
            state.keyring.prove(token, state.clock.now()).await
        }
        Err(fault) => Err(fault),
    };
    match proven {
        Ok(caller) => {
            note_claims(&state.stores, &caller.user, caller.name.as_deref(), caller.picture.as_deref());
            Ok(caller)
        }
        Err(fault) => {
            metrics::TOKENS_REFUSED.add(&[fault.label()], 1);
            Err(fault.into())
        }
    }
}

enum Found<'a> {
    Header(&'a str),
    Cookie(&'a str),
}

fn token_of<'a>(headers: &'a HeaderMap, cookie: Option<&str>) -> Result<Found<'a>, TokenFault> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    if let Some(value) = values.next() {
        // Two proofs are none: which of them would count?
        if values.next().is_some() {
            return Err(TokenFault::Malformed);
        }
        let text = value.to_str().map_err(|_| TokenFault::Malformed)?;
        let (scheme, token) = text.split_once(' ').ok_or(TokenFault::Malformed)?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(TokenFault::Missing);
        }
        return Ok(Found::Header(token.trim()));
    }
    let name = cookie.ok_or(TokenFault::Missing)?;
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(';'));
    let found = cookies.filter_map(|pair| pair.trim().split_once('=')).find(|(n, _)| *n == name);
    found.map(|(_, token)| Found::Cookie(token.trim_matches('"'))).ok_or(TokenFault::Missing)
}

fn is_allowed_origin(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (Some(origin), None) => allowed.iter().any(|a| a.as_bytes() == origin.as_bytes()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn found(pairs: &[(&'static str, &'static str)], cookie: Option<&str>) -> String {
        match token_of(&headers(pairs), cookie) {
            Ok(Found::Header(token)) => format!("header {token}"),
            Ok(Found::Cookie(token)) => format!("cookie {token}"),
            Err(fault) => format!("{fault:?}"),
        }
    }

    #[test]
    fn finds_one_token_or_none() {
        assert_eq!(found(&[("authorization", "Bearer abc")], None), "header abc");
        assert_eq!(found(&[("authorization", "bearer abc ")], None), "header abc");
        assert_eq!(found(&[("authorization", "Basic abc")], None), "Missing");
        assert_eq!(found(&[("authorization", "abc")], None), "Malformed");
        assert_eq!(found(&[("authorization", "Bearer a"), ("authorization", "Bearer b")], None), "Malformed");
        assert_eq!(found(&[("cookie", "jwt=abc")], None), "Missing");
        assert_eq!(found(&[("cookie", "x=y; jwt=abc; jwtt=d")], Some("jwt")), "cookie abc");
        assert_eq!(found(&[("cookie", "jwt=abc"), ("authorization", "Bearer h")], Some("jwt")), "header h");
        assert_eq!(found(&[("cookie", "xjwt=abc")], Some("jwt")), "Missing");
    }

    #[test]
    fn origins_are_compared_whole() {
        let allowed = vec!["https://app.example".to_owned()];
        assert!(is_allowed_origin(&headers(&[("origin", "https://app.example")]), &allowed));
        for other in ["https://app.example.evil", "http://app.example", "null", "https://app.example:8443", ""] {
            assert!(!is_allowed_origin(&headers(&[("origin", other)]), &allowed), "{other}");
        }
        assert!(!is_allowed_origin(&headers(&[]), &allowed));
        assert!(!is_allowed_origin(&headers(&[("origin", "https://app.example"), ("origin", "https://app.example")]), &allowed));
    }
}
