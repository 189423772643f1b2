//! Holds users back who go too fast. Limits protect; they are never why a message is lost: what Redis cannot say in time is let through.

use std::time::{Duration, Instant};

use super::Stores;
use crate::domain::ids::UserId;
use crate::domain::rate_limit::{LimitState, Limited, Rate};
use crate::domain::refusal::Refusal;
use crate::redis::error::RedisError;
use crate::redis::link::LinkError;
use crate::redis::take_token::{Token, give_token_back, take_token};

/// Time for which a bucket is asked for; a user's slot that is away holds back nobody for longer.
const TRY_FOR: Duration = Duration::from_millis(1_000);
/// Between two tries.
const PAUSE: Duration = Duration::from_millis(20);

/// Takes a token of a user's limit. `Ok(None)` when there is no such limit, or nobody can say.
///
/// # Errors
/// [`Refusal::RateLimited`] when there is none.
pub async fn take_from_user(stores: &Stores, user: &UserId, limited: Limited) -> Result<Option<LimitState>, Refusal> {
    let Some(rate) = rate_of(stores, limited) else { return Ok(None) };
    let until = Instant::now() + TRY_FOR;
    loop {
        match take_token(&stores.link, &stores.keys, user, limited, &rate, stores.clock.now()).await {
            Ok(Token::Taken { left }) => return Ok(Some(rate.with_left(limited, left))),
            Ok(Token::Empty { wait_ms }) => return Err(Refusal::RateLimited(rate.empty(limited, wait_ms))),
            // What was never sent took no token; a crowd that waits for its turn on the connection is just what is to be held back.
            Err(RedisError::Link(LinkError::NotSent(_))) if Instant::now() < until => tokio::time::sleep(PAUSE).await,
            Err(error) => {
                tracing::debug!(%error, "a limit cannot be looked up; let through");
                return Ok(None);
            }
        }
    }
}

/// Gives back the token that was taken, when what it was taken for cost nothing.
pub async fn give_back(stores: &Stores, user: &UserId, taken: Option<LimitState>) {
    let Some((rate, limited)) = taken.and_then(|taken| Some((rate_of(stores, taken.limited)?, taken.limited))) else { return };
    if let Err(error) = give_token_back(&stores.link, &stores.keys, user, limited, &rate, stores.clock.now()).await {
        tracing::debug!(%error, "a token could not be given back");
    }
}

/// The limit as it is set up; a user's are per user, the conversation's is looked after by the script that numbers its messages.
#[must_use]
pub fn rate_of(stores: &Stores, limited: Limited) -> Option<Rate> {
    let settings = &stores.settings;
    match limited {
        Limited::UserSends => Rate::of(settings.user_sends_per_second, settings.user_sends_burst),
        Limited::UserWrites => Rate::of(settings.user_writes_per_second, settings.user_writes_burst),
        Limited::ConversationSends => Rate::of(settings.conversation_sends_per_second, settings.conversation_sends_burst),
        Limited::Streams => None,
    }
}
