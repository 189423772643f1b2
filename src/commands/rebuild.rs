//! `seqline rebuild`: Redis anew from Postgres, all of it or one conversation, while everything runs.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::{EXIT_USAGE, failed, not_started};
use crate::actions::Stores;
use crate::actions::rebuild_redis::{RebuildStop, await_backlog, rebuild_conversation, rebuild_logs, rebuild_shard};
use crate::domain::ids::{ConversationId, ShardId, UserId};
use crate::settings::{Role, Settings};
use crate::startup::open_stores;

/// Shown under `seqline rebuild --help`.
pub const EXAMPLES: &str = "\
Gateways and workers go on meanwhile: workers have to run, for what was accepted is brought to Postgres first. A conversation's sends wait for
a moment while it is rebuilt. After all of them every open stream gets one `resync`, after one conversation nobody sees anything.
It may be cut off and begun again at any time.

Examples:
  seqline rebuild                                        everything
  seqline rebuild --conversation group:01890a5d…         one conversation
  seqline rebuild --from-shard 17                        go on where it was cut off

Exit codes: 0 done, 1 stopped before something would have been lost or because a store is away, 2 called or set wrongly.";

/// Arguments of `rebuild`.
#[derive(Args, Debug)]
pub struct RebuildArgs {
    /// Only this conversation
    #[arg(long, value_name = "ID", conflicts_with = "from_shard")]
    pub conversation: Option<String>,
    /// Begin at this shard, counted from 0; with the number of shards only the users' logs are left
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub from_shard: u16,
    /// Seconds to wait for what is not in Postgres yet, for each shard and each conversation
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub wait: u64,
    /// The settings
    #[command(flatten)]
    pub settings: Settings,
}

/// Rebuilds.
pub async fn run(args: RebuildArgs) -> ExitCode {
    let settings = args.settings.tidy();
    if let Err(fault) = settings.validate(Role::Worker) {
        eprintln!("seqline: {fault}");
        return ExitCode::from(EXIT_USAGE);
    }
    if args.from_shard > settings.shards {
        eprintln!("seqline: --from-shard is {}, but there are {} shards", args.from_shard, settings.shards);
        return ExitCode::from(EXIT_USAGE);
    }
    let conversation = match args.conversation.as_deref().map(|id| (id, ConversationId::parse(id))) {
        None => None,
        Some((_, Some(id))) => Some(id),
        Some((id, None)) => {
            eprintln!("seqline: '{id}' is no conversation's id");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let stores = match open_stores(Arc::new(settings)).await {
        Ok(stores) => stores,
        Err(error) => return not_started(&error),
    };
    let wait = Duration::from_secs(args.wait);
    match conversation {
        Some(id) => match rebuild_conversation(&stores, &id, wait).await {
            Ok(()) => {
                println!("{id} is rebuilt from Postgres.");
                ExitCode::SUCCESS
            }
            Err(stop) => failed(&format!("{stop}. Nothing was changed.")),
        },
        None => rebuild_all(&stores, args.from_shard, wait).await,
    }
}

async fn rebuild_all(stores: &Stores, from_shard: u16, wait: Duration) -> ExitCode {
    let shards = stores.keys.shards;
    // All are looked at before the first is touched.
    for shard in (from_shard..shards).map(ShardId) {
        if let Err(stop) = await_backlog(stores, shard, None, wait).await {
            return failed(&format!("{stop}. Nothing was changed."));
        }
    }
    let mut conversations = 0;
    for shard in from_shard..shards {
        match rebuild_shard(stores, ShardId(shard), wait).await {
            Ok(count) => {
                conversations += count;
                println!("shard {shard} of 0 to {}: {count} conversations, {conversations} so far", shards - 1);
            }
            Err(stop) => return cut_off(&stop, shard),
        }
    }
    let (mut logs, mut after): (u64, Option<UserId>) = (0, None);
    loop {
        match rebuild_logs(stores, after.as_ref()).await {
            Ok(done) => {
                logs += done.renewed;
                if done.last.is_none() {
                    break;
                }
                after = done.last;
                println!("logs: {logs} so far");
            }
            Err(stop) => return cut_off(&stop, shards),
        }
    }
    println!(
        "Rebuilt from Postgres: {conversations} conversations; {logs} users' logs began anew and their streams were told to read again."
    );
    ExitCode::SUCCESS
}

fn cut_off(stop: &RebuildStop, at: u16) -> ExitCode {
    failed(&format!("{stop}. What was done stands, nothing was lost; go on with --from-shard {at}"))
}
