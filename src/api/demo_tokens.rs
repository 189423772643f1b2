//! Tokens for whoever asks: what makes the demonstration of `seqline dev` work without an account system. The route is there only when
//! `dev` hands over its secret, which no setting can do, and answers only this very machine.

use std::fmt;
use std::net::IpAddr;

use axum::Router;
use axum::extract::{Extension, State};
use axum::http::header::{CACHE_CONTROL, HOST};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::Response;
use axum::routing::post;
use serde::{Deserialize, Serialize};

use super::AppState;
use super::respond::{Problem, ok};
use super::strict_json::StrictJson;
use crate::delivery::socket::PeerSocket;
use crate::domain::ids::UserId;
use crate::identity::mint::{Claims, mint};

/// How long such a token is good, in seconds.
const TOKEN_SECONDS: i64 = 3_600;

/// The secret that signs them.
#[derive(Clone)]
pub struct DemoSecret(pub String);

impl fmt::Debug for DemoSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DemoSecret")
    }
}

/// Who the asker wants to be.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    user: String,
}

#[derive(Serialize)]
struct Given {
    token: String,
    expires_in: i64,
}

/// Adds the route to those of the contract.
pub fn beside(routes: Router<AppState>) -> Router<AppState> {
    routes.route("/demo/token", post(give_token))
}

/// A token of any user.
async fn give_token(
    State(state): State<AppState>,
    peer: Option<Extension<PeerSocket>>,
    headers: HeaderMap,
    StrictJson(wanted): StrictJson<Wanted>,
) -> Result<Response, Problem> {
    let secret = state.demo.as_ref().ok_or_else(Problem::not_found)?;
    let near = peer.and_then(|Extension(peer)| peer.address()).is_some_and(|address| address.is_loopback());
    // A page of the world whose name was made to lead here would be of this origin, but its name would still stand in the request.
    if !near || !names_this_machine(&headers) {
        return Err(Problem::not_found());
    }
    let user = UserId::parse(&wanted.user).map_err(|fault| fault.of("user"))?;
    let now = state.clock.now().div_euclid(1_000);
    let claims =
        Claims { sub: user.to_string(), iat: now, exp: now + TOKEN_SECONDS, name: Some(name_of(&user.to_string())), ..Claims::default() };
    let token = mint(&secret.0, &claims).map_err(|_| Problem::unavailable())?;
    let mut answer = ok(&Given { token, expires_in: TOKEN_SECONDS });
    answer.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(answer)
}

/// The id with a capital letter.
fn name_of(user: &str) -> String {
    let mut letters = user.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST).and_then(|host| host.to_str().ok()) else { return false };
    let bare = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    bare.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_count() {
        let named = |host: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static(host));
            names_this_machine(&headers)
        };
        for host in ["127.0.0.1:8080", "localhost", "LOCALHOST:8080", "[::1]:8080", "127.1.2.3"] {
            assert!(named(host), "{host}");
        }
        for host in ["chat.example", "127.0.0.1.nip.example:8080", "localhost.example", "10.0.0.1:8080", "", "[::2]"] {
            assert!(!named(host), "{host}");
        }
        assert!(!names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn names_are_ids_with_a_capital_letter() {
        assert_eq!((name_of("ann").as_str(), name_of("émile").as_str(), name_of("北").as_str()), ("Ann", "Émile", "北"));
    }
}
