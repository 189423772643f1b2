//! HTTP and SSE: with `ops.rs` the only place that knows axum. Handlers prove what came in, call one action, and dress its outcome;
//! they hold no store and no rule of the product.
//!
//! A handler's signature shows who may call it and what it reads: [`Caller`](crate::identity::Caller) first (identity comes before
//! everything), then what stands in the path, then the body. It ends in `Result<_, Problem>`; a `Refusal` becomes a problem with `?`.
//!
//! | wanted | take |
//! |---|---|
//! | the caller | `caller: Caller` |
//! | `{id}`, `{seq}`, `{user_id}` in the path | [`path::ConversationPath`], [`path::SeqPath`], [`path::UserPath`] |
//! | the query | [`paging::Query`], whose `finish` refuses what was not asked for |
//! | a JSON body, refused at once | [`strict_json::StrictJson`] |
//! | a JSON body, whose 422 must wait for a 404 | [`strict_json::DeferredJson`] |

pub mod audit;
pub mod blocks;
pub mod caller;
pub mod conversations;
pub mod demo_tokens;
pub mod event_ack;
pub mod event_poll;
pub mod event_stream;
pub mod event_ticket;
pub mod export;
pub mod import;
pub mod layers;
pub mod listener;
pub mod media;
pub mod members;
pub mod members_only;
pub mod message_changes;
pub mod messages;
pub mod openapi;
pub mod paging;
pub mod path;
pub mod peer_address;
pub mod preferences;
pub mod push;
pub mod readers;
pub mod respond;
pub mod router;
pub mod search;
pub mod shares;
pub mod strict_json;
pub mod typing;
pub mod users;
pub mod web_client;

use std::ops::Deref;
use std::sync::Arc;

use crate::actions::Stores;
use crate::clock::Clock;
use crate::delivery::OpenStreams;
use crate::identity::Keyring;
use crate::settings::Settings;

/// What handlers reach. One pointer wide, because every route of every connection holds a copy.
#[derive(Clone)]
pub struct AppState(Arc<Parts>);

/// The parts of [`AppState`].
pub struct Parts {
    /// Handed on to actions, never used here.
    pub stores: Arc<Stores>,
    /// The streams that are open here.
    pub hub: Arc<OpenStreams>,
    /// Proves tokens.
    pub keyring: Arc<Keyring>,
    /// Settings.
    pub settings: Arc<Settings>,
    /// The wall clock.
    pub clock: Clock,
    /// Signs tokens for whoever asks; only `seqline dev` has it.
    pub demo: Option<demo_tokens::DemoSecret>,
}

impl AppState {
    /// State of one gateway.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        Self(Arc::new(parts))
    }
}

impl Deref for AppState {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}
