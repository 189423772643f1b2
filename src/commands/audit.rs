//! `seqline audit`: do Redis and Postgres hold what they must, and agree? Reads; changes nothing without `--repair`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::json;
use tokio::time::timeout;

use super::EXIT_USAGE;
use crate::actions::Stores;
use crate::actions::archive_outbox::ArchiveStop;
use crate::actions::audit_conversations::audit_conversation;
use crate::actions::audit_everything::{Audit, Place};
use crate::actions::audit_repairs::repair;
use crate::contract::audit::AuditFinding;
use crate::domain::audit::{Code, Finding};
use crate::domain::ids::ConversationId;
use crate::postgres::{Archive, Claim};
use crate::redis::link::Link;
use crate::settings::{Role, Settings, shown_url};

/// Shown under `seqline audit -h`.
pub const EXAMPLES: &str = "\
Examples:
  seqline audit                                everything; Ctrl-C ends it and prints the place to go on from
  seqline audit --after users/ann              goes on from there
  seqline audit --conversation group:0193…     one conversation
  seqline audit --json | jq -c 'select(.code)' findings, one a line

Exit codes: 0 nothing is wrong (or all of it was mended), 1 something is, 2 it could not be done, or not to its end.
--help lists what it finds.";

/// Time for the first answer of a store.
const ASK_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for one attempt to reach Redis, in milliseconds.
const CONNECT_MS: u64 = 3_000;
/// Tries of a page while a store does not answer, and the pause between them.
const TRIES: u32 = 5;
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Arguments of `audit`.
#[derive(Args, Debug)]
pub struct AuditArgs {
    /// Only this conversation; may be given several times
    #[arg(long, value_name = "ID", conflicts_with = "after")]
    pub conversation: Vec<String>,
    /// Go on from the place that an audit printed
    #[arg(long, value_name = "PLACE")]
    pub after: Option<String>,
    /// Print JSON, one object a line: the findings, then a summary
    #[arg(long)]
    pub json: bool,
    /// Mend what can be mended safely; each repair is printed before it is made
    #[arg(long)]
    pub repair: bool,
    /// Seconds after which what waits for Postgres or for its search terms is a finding
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    pub late_after: u64,
    /// The settings
    #[command(flatten)]
    pub settings: Settings,
}

/// Every code with its meaning, for `--help`.
#[must_use]
pub fn codes() -> String {
    let mut text = format!("{EXAMPLES}\n\nFindings (those with a star are mended by --repair):\n");
    for code in Code::ALL {
        let star = if code.is_repaired() { "*" } else { " " };
        text.push_str(&format!("  {:<24}{star} {}\n", code.as_str(), code.meaning()));
    }
    text
}

/// What was found so far.
#[derive(Debug, Default)]
struct Tally {
    found: u64,
    mended: u64,
}

/// Audits and prints what was found.
pub async fn run(args: AuditArgs) -> ExitCode {
    match execute(&args).await {
        Ok(code) => code,
        Err(why) => {
            eprintln!("seqline: {why}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

async fn execute(args: &AuditArgs) -> Result<ExitCode, String> {
    let stores = open(args.settings.clone().tidy()).await?;
    let late_ms = i64::try_from(args.late_after.saturating_mul(1_000)).unwrap_or(i64::MAX);
    let mut audit = if args.conversation.is_empty() {
        let place = match args.after.as_deref() {
            None => Place::Begin,
            Some(text) => Place::parse(text).ok_or_else(|| format!("--after cannot be '{text}': it is no place that an audit prints"))?,
        };
        Audit::of_everything(&stores, place, late_ms)
    } else {
        let parse = |id: &String| ConversationId::parse(id).ok_or_else(|| format!("--conversation cannot be '{id}'"));
        let chosen: Vec<ConversationId> = args.conversation.iter().map(parse).collect::<Result<_, _>>()?;
        for id in &chosen {
            // A mistyped id must not look like a conversation in which all is well.
            if audit_conversation(&stores, id).await.map_err(|stop| stop.to_string())?.is_none() {
                return Err(format!("there is no conversation '{id}'"));
            }
        }
        Audit::of(&stores, chosen)
    };
    let (mut tally, mut tries, mut stopped) = (Tally::default(), 0, None);
    let interrupted = tokio::signal::ctrl_c();
    tokio::pin!(interrupted);
    loop {
        let step = tokio::select! {
            biased;
            _ = &mut interrupted => {
                stopped = Some("interrupted".to_owned());
                break;
            }
            step = audit.step() => step,
        };
        match step {
            Ok(None) => break,
            Ok(Some(found)) => {
                tries = 0;
                for finding in &found {
                    tell(args, &stores, finding, &mut tally).await.map_err(|error| error.to_string())?;
                }
            }
            Err(_) if tries < TRIES => {
                tries += 1;
                tokio::time::sleep(TRY_AGAIN).await;
            }
            Err(error) => {
                stopped = Some(error.to_string());
                break;
            }
        }
    }
    Ok(conclude(args, &audit, &tally, stopped))
}

/// Reaches both stores without writing anything.
async fn open(settings: Settings) -> Result<Arc<Stores>, String> {
    settings.validate(Role::Worker).map_err(|fault| fault.to_string())?;
    let redis = shown_url(&settings.redis_url);
    let link = match timeout(ASK_TIMEOUT, Link::connect(&settings.redis_url, CONNECT_MS)).await {
        Ok(Ok(link)) => link,
        Ok(Err(error)) => return Err(format!("Redis at {redis} cannot be reached: {error}")),
        Err(_) => return Err(format!("Redis at {redis} does not answer in time")),
    };
    let postgres = shown_url(&settings.database_url);
    let archive = Archive::connect(&settings.database_url, settings.database_connections)
        .map_err(|error| format!("Postgres at {postgres}: {error}"))?;
    let facts = match timeout(ASK_TIMEOUT, archive.server_facts()).await {
        Ok(Ok(facts)) => facts,
        Ok(Err(error)) => return Err(format!("Postgres at {postgres}: {error}")),
        Err(_) => return Err(format!("Postgres at {postgres} does not answer in time")),
    };
    if !facts.migrated {
        return Err("the tables are not there; run `seqline migrate`".to_owned());
    }
    if let Some(Claim::Mismatch { shards, partitions }) = facts.claim(settings.shards, settings.partitions) {
        return Err(format!("this installation was made with SEQLINE_SHARDS={shards} and SEQLINE_PARTITIONS={partitions}; set them so"));
    }
    Ok(Stores::new(link, archive, None, Arc::new(settings)))
}

async fn tell(args: &AuditArgs, stores: &Stores, finding: &Finding, tally: &mut Tally) -> Result<(), ArchiveStop> {
    tally.found += 1;
    let shape = AuditFinding::from(finding);
    if args.json {
        println!("{}", serde_json::to_string(&shape).unwrap_or_default());
    } else {
        println!("{}", line(finding));
    }
    if !args.repair || !finding.code.is_repaired() {
        return Ok(());
    }
    let how = finding.code.what_to_do().trim_start_matches("repaired: ");
    if args.json {
        println!("{}", json!({"repair": finding.code.as_str(), "how": how, "conversation_id": shape.conversation_id, "seq": shape.seq}));
    } else {
        println!("  repair: {how}");
    }
    if repair(stores, finding).await? {
        tally.mended += 1;
    }
    Ok(())
}

fn line(finding: &Finding) -> String {
    let mut text = format!("{:<24} {}", finding.code.as_str(), finding.code.meaning());
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("\n{:<24} {name} {value}", ""));
        }
    };
    add("in", finding.conversation.as_ref().map(ToString::to_string));
    add("at", finding.seq.map(|from| finding.to_seq.filter(|to| *to != from).map_or(from.to_string(), |to| format!("{from} to {to}"))));
    add("of", finding.user.clone());
    add("about", finding.subject.clone());
    add("namely", Some(finding.note.clone()).filter(|note| !note.is_empty()));
    add("to do:", (!finding.code.is_repaired()).then(|| finding.code.what_to_do().to_owned()));
    text
}

fn conclude(args: &AuditArgs, audit: &Audit<'_>, tally: &Tally, stopped: Option<String>) -> ExitCode {
    let after = stopped.as_ref().map(|_| audit.place.to_string()).filter(|place| !place.is_empty());
    let left = tally.found - tally.mended;
    let looked = audit.looked;
    if args.json {
        println!(
            "{}",
            json!({"summary": {"complete": stopped.is_none(), "findings": tally.found, "repaired": tally.mended, "after": after,
                "conversations": looked.conversations, "messages": looked.messages, "users": looked.users}})
        );
    } else {
        println!(
            "{} conversations, {} numbers, {} users looked at: {} findings, {} mended.",
            looked.conversations, looked.messages, looked.users, tally.found, tally.mended
        );
    }
    if let Some(why) = &stopped {
        match &after {
            Some(place) => eprintln!("seqline: {why}; go on with --after {place}"),
            None => eprintln!("seqline: {why}; nothing was finished, begin again"),
        }
        return ExitCode::from(EXIT_USAGE);
    }
    if left == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
