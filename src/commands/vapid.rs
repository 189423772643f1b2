//! `seqline vapid`: the key pair that pushes are signed with.

use std::process::ExitCode;

use super::failed;
use crate::push::VapidKey;

/// Shown under `seqline vapid --help`.
pub const EXAMPLES: &str = "\
Example:
  seqline vapid >> secrets.env       once, and kept: browsers' subscriptions are bound to the key, a new one ends them all

Set it for gateways and workers alike, and SEQLINE_VAPID_SUBJECT beside it.";

/// Prints a new key as a line of settings, and its public half as a remark.
#[must_use]
pub fn run() -> ExitCode {
    let made = VapidKey::make().and_then(|text| Ok((VapidKey::read(&text)?.public_text(), text)));
    match made {
        Ok((public, private)) => {
            println!("# The public key, as GET /v1/push/key gives it: {public}\nSEQLINE_VAPID_PRIVATE_KEY={private}");
            ExitCode::SUCCESS
        }
        Err(fault) => failed(&fault.to_string()),
    }
}
