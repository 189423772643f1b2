//! Every script of the project, so that what must hold for all of them can be checked for all of them.

use super::link::Script;
use super::{
    ack_cursor, advance_cursor, advance_read, announce_epoch, close_conversation, commit_change, deliver_events, discard_conversation,
    drop_conversation, extend_lease, find_message, forget_left, install_conversation, lease_shard, mark_offset, open_conversation,
    open_epoch, read_aside, read_backlog, read_conversation, read_index, read_intervals, read_log, read_members, read_messages, read_shard,
    register_streams, register_worker, release_shard, reopen_conversation, send_message, touch_index, trim_window, wake_gateway,
};

/// All scripts, in alphabetical order of their names; each stands beside its typed function.
pub static ALL: &[&Script] = &[
    &ack_cursor::SCRIPT,
    &advance_cursor::SCRIPT,
    &advance_read::SCRIPT,
    &announce_epoch::SCRIPT,
    &close_conversation::SCRIPT,
    &commit_change::SCRIPT,
    &deliver_events::SCRIPT,
    &discard_conversation::SCRIPT,
    &drop_conversation::SCRIPT,
    &extend_lease::SCRIPT,
    &find_message::SCRIPT,
    &forget_left::SCRIPT,
    &install_conversation::SCRIPT,
    &lease_shard::SCRIPT,
    &mark_offset::SCRIPT,
    &open_conversation::SCRIPT,
    &open_epoch::SCRIPT,
    &read_aside::SCRIPT,
    &read_backlog::SCRIPT,
    &read_conversation::SCRIPT,
    &read_index::SCRIPT,
    &read_intervals::SCRIPT,
    &read_log::SCRIPT,
    &read_members::SCRIPT,
    &read_messages::SCRIPT,
    &read_shard::SCRIPT,
    &register_streams::SCRIPT,
    &register_worker::SCRIPT,
    &release_shard::SCRIPT,
    &reopen_conversation::SCRIPT,
    &send_message::SCRIPT,
    &touch_index::SCRIPT,
    &trim_window::SCRIPT,
    &wake_gateway::SCRIPT,
];
