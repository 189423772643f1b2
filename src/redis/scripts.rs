//! Every script of the project, so that what must hold for all of them can be checked for all of them.

use super::link::Script;
use super::{
    advance_read, commit_change, extend_lease, find_message, install_conversation, open_conversation, open_epoch, read_conversation,
    read_messages, send_message,
};

/// All scripts, in alphabetical order of their names; each stands beside its typed function.
pub static ALL: &[&Script] = &[
    &advance_read::SCRIPT,
    &commit_change::SCRIPT,
    &extend_lease::SCRIPT,
    &find_message::SCRIPT,
    &install_conversation::SCRIPT,
    &open_conversation::SCRIPT,
    &open_epoch::SCRIPT,
    &read_conversation::SCRIPT,
    &read_messages::SCRIPT,
    &send_message::SCRIPT,
];
