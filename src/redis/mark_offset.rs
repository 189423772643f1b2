//! One small write and a `WAIT` behind it, on a connection that does nothing else.

use bytes::Bytes;
use fred::interfaces::ClientLike;
use fred::types::Value;

use super::link::{LinkError, Script};
use super::node::{Connection, Fault, custom, fault_of_error};
use super::replicas::Standing;

/// The write.
pub static SCRIPT: Script = Script { name: "mark_offset", source: include_str!("../../lua/mark_offset.lua") };

/// What came of one wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waited {
    /// Replicas that have confirmed.
    pub(super) confirmed: u64,
    /// How the server stood afterwards.
    pub(super) standing: Standing,
    /// The connection's number afterwards: another one than before means that the mark and the wait went different ways.
    pub(super) connection_id: i64,
}

/// Writes `key` and waits up to `wait_ms` until `replicas` have it. One pipeline, so that nothing comes between the two.
///
/// The text of the script is sent whole: an answer that it is unknown would come only after the wait behind it.
pub(super) async fn mark_offset(connection: &Connection, key: &str, replicas: u64, wait_ms: u64) -> Result<Waited, Fault> {
    let text = |text: &str| Value::Bytes(Bytes::copy_from_slice(text.as_bytes()));
    let pipeline = connection.client().pipeline();
    let queue = async |name: &'static str, args: Vec<Value>| {
        let queued: Result<Value, _> = pipeline.custom(custom(name), args).await;
        queued.map(|_| ()).map_err(|e| fault_of_error(&e))
    };
    queue("EVAL", vec![text(SCRIPT.source), text("1"), text(key), text("")]).await?;
    queue("WAIT", vec![text(&replicas.to_string()), text(&wait_ms.to_string())]).await?;
    queue("INFO", vec![text("replication")]).await?;
    queue("CLIENT", vec![text("ID")]).await?;
    let (_, confirmed, info, connection_id): (Value, u64, String, i64) = pipeline.all().await.map_err(|e| fault_of_error(&e))?;
    let standing = Standing::read(&info).ok_or_else(|| Fault::Link(LinkError::Refused("unreadable INFO replication".to_owned())))?;
    Ok(Waited { confirmed, standing, connection_id })
}
