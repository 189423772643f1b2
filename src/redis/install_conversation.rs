//! Brings a conversation into Redis, still closed.

use bytes::Bytes;

use super::conversation_head::{BLOCK_FIELDS, pair_json};
use super::error::RedisError;
use super::keys::{self, Keys};
use super::link::{Link, Script};
use super::reply::unknown_word;
use super::stored_form::{StoredMessage, member_record, mention_entry};
use crate::domain::conversation::Conversation;
use crate::domain::ids::{ConversationId, Millis, Seq, UserId};
use crate::domain::membership::Member;
use crate::domain::message::Message;

/// The script.
pub static SCRIPT: Script = Script { name: "install_conversation", source: include_str!("../../lua/install_conversation.lua") };

/// How long after its loading a key's own time must lie for Redis to decide it alone, in ms: a client's clock may be that far ahead.
const KEY_CLOCK_SLACK_MS: Millis = 60_000;

/// What is installed.
#[derive(Clone, Debug)]
pub struct Installation {
    /// The conversation's id.
    pub id: ConversationId,
    /// The shard's epoch.
    pub epoch: u64,
    /// The lease, both ends included.
    pub lease: (Seq, Seq),
    /// What the archive holds; `None` for a pair that never wrote.
    pub archived: Option<ArchivedWhole>,
}

/// A conversation out of the archive.
#[derive(Clone, Debug)]
pub struct ArchivedWhole {
    /// The common facts.
    pub conversation: Conversation,
    /// Current members.
    pub members: Vec<Member>,
    /// Watermarks: user, seq, when.
    pub marks: Vec<(UserId, Seq, Millis)>,
    /// The newest messages, ascending and without a hole but voids.
    pub recent: Vec<Message>,
    /// Seqs that never count as unread.
    pub uncounted: Vec<Seq>,
    /// Unread messages that name a member.
    pub mentions: Vec<(UserId, Seq)>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It is there, closed.
    Installed,
    /// Somebody else was first.
    Present,
    /// The shard is in another epoch by now.
    StaleEpoch,
}

/// Installs a conversation.
///
/// # Errors
/// When Redis cannot be asked; repeating is safe.
pub async fn install_conversation(link: &Link, keys: &Keys, now: Millis, what: &Installation) -> Result<Installed, RedisError> {
    let shard = keys.shard_of(&what.id);
    let mut names = vec![keys::shard_info(shard), keys::warm(shard)];
    names.extend(keys.conversation(&what.id).all());
    let mut args: Vec<Bytes> = vec![what.epoch.to_string().into(), now.to_string().into(), what.id.to_string().into()];
    let fields = head_fields(now, what);
    push_list(&mut args, fields.len(), fields.into_iter().flat_map(|(name, value)| [name.to_owned(), value]));
    let mentions = what.archived.as_ref().map_or(&[][..], |a| a.mentions.as_slice());
    let (members, marks, recent, uncounted) = what.archived.as_ref().map_or((&[][..], &[][..], &[][..], &[][..]), |a| {
        (a.members.as_slice(), a.marks.as_slice(), a.recent.as_slice(), a.uncounted.as_slice())
    });
    push_list(&mut args, members.len(), members.iter().flat_map(|m| [m.user.to_string(), member_record(m)]));
    push_list(&mut args, marks.len(), marks.iter().flat_map(|(user, seq, at)| [user.to_string(), format!("{seq} {at}")]));
    let value = |m: &Message| format!("{} {}", m.rev, StoredMessage::of(m).to_json());
    push_list(&mut args, recent.len(), recent.iter().flat_map(|m| [m.seq.to_string(), m.rev.to_string(), value(m)]));
    push_list(&mut args, uncounted.len(), uncounted.iter().map(ToString::to_string));
    push_list(&mut args, mentions.len(), mentions.iter().map(|(user, seq)| mention_entry(user, *seq)));
    let reply = link.eval(&SCRIPT, names, args).await?;
    Ok(match reply.items()?.str()? {
        "installed" => Installed::Installed,
        "present" => Installed::Present,
        "stale_epoch" => Installed::StaleEpoch,
        _ => unknown_word("install_conversation: unknown word")?,
    })
}

fn push_list(args: &mut Vec<Bytes>, count: usize, items: impl Iterator<Item = String>) {
    args.push(count.to_string().into());
    args.extend(items.map(Bytes::from));
}

fn head_fields(now: Millis, what: &Installation) -> Vec<(&'static str, String)> {
    let (from, to) = what.lease;
    let mut fields = vec![
        ("next", from.to_string()),
        ("lease_from", from.to_string()),
        ("lease_to", to.to_string()),
        ("kgen", "0".to_owned()),
        ("kgen_at", now.to_string()),
    ];
    let Some(archived) = &what.archived else {
        fields.extend([
            ("made", "0".to_owned()),
            ("head", "0".to_owned()),
            ("rev", "0".to_owned()),
            ("mver", "0".to_owned()),
            ("mcount", "0".to_owned()),
            ("created_at", now.to_string()),
            // Whoever makes it may have begun before this moment, and says when.
            ("updated_at", "0".to_owned()),
            ("keys_since", now.to_string()),
            ("keys_all", "1".to_owned()),
            ("floor", from.to_string()),
            ("voids", if from > 1 { format!("[[1,{}]]", from - 1) } else { "[]".to_owned() }),
        ]);
        return fields;
    };
    let c = &archived.conversation;
    // A conversation without a message has no key that Redis could have forgotten.
    let (keys_since, keys_all) = if c.head_seq == 0 { (now, "1") } else { (now + KEY_CLOCK_SLACK_MS, "0") };
    let voids: Vec<[Seq; 2]> = c.voids.iter().map(|(a, b)| [*a, *b]).collect();
    fields.extend([
        ("made", "1".to_owned()),
        ("head", c.head_seq.to_string()),
        ("rev", c.rev.to_string()),
        // Who read a message from the archive before this moment must read it again.
        ("under_rev", c.rev.to_string()),
        // Versions are revs, so that they grow across cooling and loading: who caches memberships compares them.
        ("mver", c.rev.to_string()),
        ("mcount", archived.members.len().to_string()),
        ("history", c.history.as_str().to_owned()),
        ("created_at", c.created_at.to_string()),
        ("updated_at", c.updated_at.to_string()),
        ("dissolved", if c.dissolved { "1" } else { "0" }.to_owned()),
        ("keys_since", keys_since.to_string()),
        ("keys_all", keys_all.to_owned()),
        ("floor", archived.recent.first().map_or(from, |m| m.seq).to_string()),
        ("voids", serde_json::to_string(&voids).unwrap_or_default()),
    ]);
    fields.extend(c.title.iter().map(|title| ("title", title.clone())));
    fields.extend(c.owner.iter().map(|owner| ("owner", owner.to_string())));
    fields.extend(c.pair.iter().map(|(low, high)| ("pair", pair_json(low, high))));
    fields.extend(c.blocks.by_low.iter().map(|since| (BLOCK_FIELDS.0, since.to_string())));
    fields.extend(c.blocks.by_high.iter().map(|since| (BLOCK_FIELDS.1, since.to_string())));
    let cleared_max = archived.members.iter().map(|m| m.preferences.cleared_to).max().unwrap_or(0);
    fields.extend((cleared_max > 0).then(|| ("cleared_max", cleared_max.to_string())));
    fields
}
