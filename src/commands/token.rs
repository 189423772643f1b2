//! `seqline token`: tokens to try things with, made as a host application would make them.

use std::process::ExitCode;

use clap::Args;

use super::{EXIT_USAGE, failed};
use crate::clock::Clock;
use crate::domain::ids::UserId;
use crate::identity::mint::{Claims, mint};
use crate::identity::token::is_device;

/// Shown under `seqline token --help`.
pub const EXAMPLES: &str = "\
Example:
  TOKEN=$(seqline token --user ann --ttl 8h --name \"Ann\")
  curl -H \"Authorization: Bearer $TOKEN\" http://127.0.0.1:8080/v1/conversations";

/// Arguments of `token`.
#[derive(Args)]
pub struct TokenArgs {
    /// Whose token
    #[arg(long, value_name = "ID")]
    pub user: String,
    /// For how long: seconds, or a number with s, m, h or d
    #[arg(long, value_name = "TIME", default_value = "1h", value_parser = seconds)]
    pub ttl: i64,
    /// Further rights: service, admin, or both with a space between
    #[arg(long, value_name = "WORDS")]
    pub scope: Option<String>,
    /// Name shown to others
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Device that the token is for
    #[arg(long, value_name = "ID")]
    pub device: Option<String>,
    /// Secrets, comma separated; the first one signs
    #[arg(long, env = "SEQLINE_JWT_HS256_SECRETS", value_delimiter = ',', value_name = "SECRETS", hide_env_values = true)]
    pub jwt_hs256_secrets: Vec<String>,
    /// Issuer to name
    #[arg(long, env = "SEQLINE_JWT_ISSUER", value_name = "TEXT")]
    pub jwt_issuer: Option<String>,
    /// Audience to name
    #[arg(long, env = "SEQLINE_JWT_AUDIENCE", value_name = "TEXT")]
    pub jwt_audience: Option<String>,
}

impl std::fmt::Debug for TokenArgs {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenArgs").field("user", &self.user).field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// Prints a token to stdout and nothing else.
#[must_use]
pub fn run(args: &TokenArgs) -> ExitCode {
    let usage = |text: String| {
        eprintln!("seqline: {text}");
        ExitCode::from(EXIT_USAGE)
    };
    let user = match UserId::parse(&args.user) {
        Ok(user) => user,
        Err(fault) => return usage(format!("--user {}", fault.fault)),
    };
    if args.device.as_deref().is_some_and(|device| !is_device(device)) {
        return usage("--device must be 1 to 128 bytes without control characters".into());
    }
    let Some(secret) = args.jwt_hs256_secrets.iter().map(|secret| secret.trim()).find(|secret| !secret.is_empty()) else {
        return usage("SEQLINE_JWT_HS256_SECRETS is missing; it must be the one that the gateways have".into());
    };
    let now = Clock::default().now().div_euclid(1000);
    let filled = |text: &Option<String>| text.clone().filter(|t| !t.is_empty());
    let claims = Claims {
        sub: user.to_string(),
        exp: now.saturating_add(args.ttl),
        iat: now,
        scope: filled(&args.scope),
        name: filled(&args.name),
        device: filled(&args.device),
        iss: filled(&args.jwt_issuer),
        aud: filled(&args.jwt_audience),
    };
    match mint(secret, &claims) {
        Ok(token) => {
            println!("{token}");
            ExitCode::SUCCESS
        }
        Err(error) => failed(&format!("the token cannot be signed: {error}")),
    }
}

/// `90`, `90s`, `15m`, `8h`, `7d` in seconds; at least one second, at most ten years.
fn seconds(text: &str) -> Result<i64, String> {
    let (digits, factor) = match text.as_bytes().last() {
        Some(b's') => (&text[..text.len() - 1], 1),
        Some(b'm') => (&text[..text.len() - 1], 60),
        Some(b'h') => (&text[..text.len() - 1], 3_600),
        Some(b'd') => (&text[..text.len() - 1], 86_400),
        _ => (text, 1),
    };
    let number = Some(digits).filter(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit())).and_then(|d| d.parse::<i64>().ok());
    let seconds = number.and_then(|n| n.checked_mul(factor)).filter(|s| (1..=315_360_000).contains(s));
    seconds.ok_or_else(|| "must be like 90, 90s, 15m, 8h or 7d".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_times_as_people_write_them() {
        for (text, wanted) in [("90", 90), ("90s", 90), ("15m", 900), ("8h", 28_800), ("7d", 604_800)] {
            assert_eq!(seconds(text), Ok(wanted));
        }
        for text in ["", "0", "h", "-1h", "+5", "1.5h", "1w", "99999999999d", "5é"] {
            assert!(seconds(text).is_err(), "{text}");
        }
    }
}
