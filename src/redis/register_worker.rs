//! The register of workers: who is there, so that each can tell what its fair share of shards is.

use bytes::Bytes;

use super::error::RedisError;
use super::keys;
use super::link::{Link, Script};
use super::reply::unknown_word;

/// The script.
pub static SCRIPT: Script = Script { name: "register_worker", source: include_str!("../../lua/register_worker.lua") };

/// Gives a worker's sign of life, which lasts `ttl_ms`, and names all workers that are alive, this one included, in order.
/// Workers without a sign are taken off the list.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn register_worker(link: &Link, worker: &str, ttl_ms: u64) -> Result<Vec<String>, RedisError> {
    let args = vec![Bytes::copy_from_slice(worker.as_bytes()), Bytes::from(ttl_ms.to_string())];
    let reply = link.eval(&SCRIPT, vec![keys::workers(), keys::worker_alive(worker)], args).await?;
    let mut items = reply.items()?;
    match items.str()? {
        "registered" => {}
        _ => return Ok(unknown_word("register_worker")?),
    }
    let mut known = items.list()?.iter().map(|id| id.as_str().map(str::to_owned)).collect::<Result<Vec<_>, _>>()?;
    known.sort();
    let signs: Vec<String> = known.iter().map(|id| keys::worker_alive(id)).collect();
    let first = signs.first().cloned().unwrap_or_default();
    let found = link.command("MGET", &first, signs.into_iter().map(Bytes::from).collect()).await?;
    let mut alive = Vec::with_capacity(known.len());
    let mut gone = Vec::new();
    for (id, sign) in known.into_iter().zip(found.as_list()?) {
        if sign.is_nil() { gone.push(id) } else { alive.push(id) }
    }
    if !gone.is_empty() {
        let set = keys::workers();
        let mut args = vec![Bytes::from(set.clone())];
        args.extend(gone.into_iter().map(Bytes::from));
        link.command("SREM", &set, args).await?;
    }
    Ok(alive)
}

/// Takes this worker off the list at its end.
///
/// # Errors
/// When Redis cannot be asked.
pub async fn sign_off_worker(link: &Link, worker: &str) -> Result<(), RedisError> {
    let (set, sign) = (keys::workers(), keys::worker_alive(worker));
    link.command("DEL", &sign, vec![Bytes::from(sign.clone())]).await?;
    link.command("SREM", &set, vec![Bytes::from(set.clone()), Bytes::copy_from_slice(worker.as_bytes())]).await?;
    Ok(())
}
