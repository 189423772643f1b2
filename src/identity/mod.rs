//! Who is calling: tokens signed by the host application, and the keys that prove them. Knows nothing of HTTP or the stores.
//!
//! There is no second account system: a user exists because the host application signs tokens for it.

pub mod caller;
pub mod key_source;
pub mod keyring;
pub mod mint;
pub mod token;

pub use caller::{Caller, LEEWAY_MS, Scopes};
pub use keyring::Keyring;
pub use token::TokenFault;
