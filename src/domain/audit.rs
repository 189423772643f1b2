//! What an audit may find: every code with what it means and what to do about it, and the findings themselves. Pure.

use std::collections::BTreeSet;

use super::ids::{ConversationId, Seq};

macro_rules! codes {
    ($($name:ident = $word:literal, $repair:literal, $means:literal, $todo:literal;)*) => {
        /// What is wrong. The words are stable: scripts compare them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Code { $(#[doc = $means] $name,)* }

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The stable word.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// What it means, for a person.
            #[must_use]
            pub fn meaning(self) -> &'static str {
                match self { $(Self::$name => $means,)* }
            }

            /// What to do about it.
            #[must_use]
            pub fn what_to_do(self) -> &'static str {
                match self { $(Self::$name => $todo,)* }
            }

            /// Whether `--repair` mends it.
            #[must_use]
            pub fn is_repaired(self) -> bool {
                match self { $(Self::$name => $repair,)* }
            }
        }
    };
}

codes! {
    Hole = "hole", false, "a number is neither a message nor void, and no refused entry waits for it", "look for it in backups of both stores; if it is gone, note the range in table voids";
    MessageInVoid = "message-in-void", false, "a message stands on a number that was declared void", "clients skip it: take the range out of voids, or move the message";
    VoidOverlap = "void-overlap", false, "two void ranges overlap", "merge the rows in table voids";
    MessageTwice = "message-twice", false, "one message id stands on two numbers (seen within 20,000 numbers)", "find out which one clients saw; the other one is a double";
    NumberTwice = "number-twice", false, "one number names two messages: Redis and Postgres differ in the id", "stop sends to the conversation; the archive's message stands, the other one must be sent again";
    MessageDiffers = "message-differs", false, "a message in Redis and in Postgres has the same version and other content", "compare both; members have seen Redis' one";
    HeadBehind = "head-behind", true, "the archive's head is below its newest message", "repaired: raised to the newest message";
    RevBehind = "rev-behind", true, "the archive's rev of a conversation is below that of one of its messages", "repaired: raised to the highest one";
    HeadBelowArchive = "head-below-archive", false, "the head in Redis is below a message in the archive: numbers would be given again", "rebuild the conversation";
    RevBelowArchive = "rev-below-archive", false, "a rev in Redis is below the archive's: Redis went back", "rebuild the conversation";
    NextWrong = "next-wrong", false, "the number that Redis gives next was given, or lies outside of its lease or beyond a hole", "rebuild the conversation at once";
    LeaseOverlap = "lease-overlap", false, "two leases, or a living lease and a void above the head, hold the same number", "end the older lease below the newer one; look for number-twice";
    LeaseUnknown = "lease-unknown", false, "Redis gives out numbers that Postgres has not leased to it", "rebuild the conversation at once";
    KeysLost = "keys-lost", false, "a lease of the living epoch is installed, but the conversation is not in Redis", "somebody deleted keys: the next use declares a void above the archive; ask who";
    FactsMissing = "facts-missing", false, "a conversation has messages or members and no facts", "see aside-waiting; else restore its row from a backup";
    ShardWrong = "shard-wrong", false, "a conversation's row names another shard or kind than its id", "correct the column";
    PairWrong = "pair-wrong", false, "a single conversation's members are not the pair that its id stands for", "correct pair_low, pair_high and members";
    OwnerCount = "owner-count", false, "a group that goes on has not exactly one owner among its members", "decide who owns it and correct members.role and conversations.owner";
    OwnerMismatch = "owner-mismatch", false, "a conversation's owner is not the member with that role, or it should have none", "correct conversations.owner or members.role";
    MembersDiffer = "members-differ", false, "Redis and Postgres have the same rev and other members", "rebuild the conversation if Postgres is right";
    MemberCount = "member-count", true, "Redis' count of members is not their number", "repaired: counted anew";
    FactsDiffer = "facts-differ", false, "Redis and Postgres have the same rev and another title, owner or end", "rebuild the conversation if Postgres is right";
    JoinBeyondHead = "join-beyond-head", false, "somebody joined at a number that was never given", "correct members.joined_seq";
    MarkBeyondHead = "mark-beyond-head", true, "a read watermark lies beyond the head", "repaired: set to the head";
    MarkMovedBack = "mark-moved-back", true, "a read watermark in Redis is below the archive's: it moved back", "repaired: raised to the archive's";
    ClearedBeyondHead = "cleared-beyond-head", false, "a member has cleared messages that were never there", "correct preferences.cleared_to";
    UnreadWrong = "unread-wrong", true, "Redis counts a message as unread that is none, or leaves one out", "repaired: the number is put in or taken out";
    MentionWrong = "mention-wrong", true, "Redis counts a mention of a message that does not name the member unread", "repaired: taken out";
    MentionMissing = "mention-missing", true, "an unread message names a member and Redis does not count it", "repaired: put in";
    WindowHole = "window-hole", false, "a message is missing between the window's floor and the head in Redis", "rebuild the conversation if the archive has the message";
    RevIndexWrong = "rev-index-wrong", true, "the index by rev in Redis differs from the window: since_rev misses a change", "repaired: the entry is set or taken out";
    VoidsDiffer = "voids-differ", false, "Redis does not know a void that Postgres has", "rebuild the conversation";
    KeyWithoutMessage = "key-without-message", true, "an idempotency key in Redis names a number without a message", "repaired: the key is dropped";
    KeyElsewhere = "key-elsewhere", false, "an idempotency key in Redis names another message than the one that was sent with it", "compare both; a retry gets the wrong message for an answer";
    KeyMissing = "key-missing", true, "Redis does not know the key of a recent message that it would decide about: a retry would be a second message", "repaired: put in";
    Unreadable = "unreadable", false, "something in Redis is not in its form", "rebuild the conversation, or begin the user's log anew";
    DeletedWithWords = "deleted-with-words", false, "a deleted message still has words, pictures or reactions", "blank it: privacy";
    QuoteBroken = "quote-broken", false, "a message answers itself, one that is not there, or one of the timeline", "look for a message moved from another conversation; take content.reply_to out";
    ReactionsWrong = "reactions-wrong", false, "reactions count somebody twice, nobody, a stranger, or stand where none may", "correct content.reactions";
    VersionWrong = "version-wrong", false, "an earlier version is kept of a message that is not there or not newer", "take the row out of message_versions";
    MediaMissing = "media-missing", false, "a message shows a picture that has no row, or is not ready, or it shows none", "restore the row; the bytes may still be there";
    MediaReferenceMissing = "media-reference-missing", true, "a message shows a picture and no reference says so: it would be swept", "repaired: the reference is written";
    MediaReferenceStale = "media-reference-stale", true, "a reference says that a message shows a picture, and it does not", "repaired: taken out, the sweeper looks at the picture";
    MediaUnwatched = "media-unwatched", true, "nothing shows a picture and the sweeper will never look at it", "repaired: the sweeper looks at it";
    SearchMissing = "search-missing", true, "a message can never be found: it has no terms and does not wait for them", "repaired: queued";
    SearchStale = "search-stale", true, "a deleted message can still be found by its words", "repaired: the terms are taken out";
    SearchBehind = "search-behind", false, "messages have waited too long for their terms", "look at the workers' log: index_messages";
    WebhookStuck = "webhook-stuck", true, "events wait for the host application and no line leads to them", "repaired: the line is written";
    BacklogOld = "backlog-old", false, "accepted changes have waited too long for Postgres", "look at the workers and at Postgres; sends are refused when the outbox is full";
    AsideWaiting = "aside-waiting", false, "Postgres refuses an accepted change, which waits aside", "read the workers' log for why; it is tried again every minute";
    OutboxGap = "outbox-gap", false, "entries left the outbox before they were archived", "look for hole; restore Redis' append-only file beside and compare";
    CursorBeyond = "cursor-beyond", false, "a cursor stands beyond what was written: what comes next would be passed over", "set the cursor back to the outbox's last id at once";
    EpochDiffers = "epoch-differs", false, "a shard's epoch in Redis is not the one that Postgres granted to this server", "is a worker running? else two servers may both give out numbers: stop the older one";
    LogPointerLost = "log-pointer-lost", false, "a user's log points to a message that is nowhere and not void", "see hole; the stream passes it over";
    LogDisordered = "log-disordered", false, "a user's log tells of messages of a conversation twice or out of order", "begin the log anew: its user gets a resync";
    LogHole = "log-hole", false, "a user's log leaves out a message between two others", "begin the log anew: its user gets a resync";
    LogBounds = "log-bounds", false, "what a user's log says of its bounds is not so", "begin the log anew: its user gets a resync";
    IndexMissing = "index-missing", true, "a user's list leaves out a conversation", "repaired: put in";
    IndexStale = "index-stale", true, "a user's list holds a conversation that they do not belong to", "repaired: taken out";
}

impl Code {
    /// The inverse of [`Code::as_str`].
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.as_str() == word)
    }
}

/// One thing that is wrong. None of its parts is what somebody said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub code: Code,
    /// In which conversation.
    pub conversation: Option<ConversationId>,
    /// At which number, of a range the first.
    pub seq: Option<Seq>,
    /// The last number of a range.
    pub to_seq: Option<Seq>,
    /// Whose.
    pub user: Option<String>,
    /// Which other thing: a shard, an outbox entry, a picture's id, an idempotency key.
    pub subject: Option<String>,
    /// More about it; may differ from one look to the next.
    pub note: String,
}

/// What makes two findings the same from one look to the next.
pub type Identity = (Code, Option<ConversationId>, Option<Seq>, Option<String>, Option<String>);

impl Finding {
    /// A finding about nothing in particular.
    #[must_use]
    pub fn new(code: Code) -> Self {
        Self { code, conversation: None, seq: None, to_seq: None, user: None, subject: None, note: String::new() }
    }

    /// A finding about a conversation.
    #[must_use]
    pub fn of(code: Code, conversation: &ConversationId) -> Self {
        Self { conversation: Some(conversation.clone()), ..Self::new(code) }
    }

    /// At this number.
    #[must_use]
    pub fn at(self, seq: Seq) -> Self {
        Self { seq: Some(seq), ..self }
    }

    /// About this user.
    #[must_use]
    pub fn by(self, user: &str) -> Self {
        Self { user: Some(user.to_owned()), ..self }
    }

    /// About this other thing.
    #[must_use]
    pub fn about(self, subject: impl Into<String>) -> Self {
        Self { subject: Some(subject.into()), ..self }
    }

    /// With more about it.
    #[must_use]
    pub fn note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }

    /// Which finding it is.
    #[must_use]
    pub fn identity(&self) -> Identity {
        (self.code, self.conversation.clone(), self.seq, self.user.clone(), self.subject.clone())
    }
}

/// Those of `before` that are still found `now`, each once, as they are now.
#[must_use]
pub fn still_there(before: &[Finding], now: Vec<Finding>) -> Vec<Finding> {
    let mut left: BTreeSet<Identity> = before.iter().map(Finding::identity).collect();
    now.into_iter().filter(|finding| left.remove(&finding.identity())).collect()
}

/// Whether a number lies in one of these ranges, both ends included.
#[must_use]
pub fn covers(ranges: &[(Seq, Seq)], seq: Seq) -> bool {
    ranges.iter().any(|(from, to)| (*from..=*to).contains(&seq))
}

/// The parts of a range that none of these numbers takes.
#[must_use]
pub fn without(from: Seq, to: Seq, taken: &BTreeSet<Seq>) -> Vec<(Seq, Seq)> {
    let mut parts = Vec::new();
    let mut start = from;
    for seq in taken.range(from..=to) {
        if *seq > start {
            parts.push((start, seq - 1));
        }
        start = seq + 1;
    }
    if start <= to {
        parts.push((start, to));
    }
    parts
}

/// The first number above `head` that no void takes.
#[must_use]
pub fn next_after(head: Seq, voids: &[(Seq, Seq)]) -> Seq {
    let mut next = head + 1;
    while let Some((_, to)) = voids.iter().find(|(from, to)| (*from..=*to).contains(&next)) {
        next = to + 1;
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_told_apart_and_read_back() {
        let words: BTreeSet<&str> = Code::ALL.iter().map(|code| code.as_str()).collect();
        assert_eq!(words.len(), Code::ALL.len());
        for code in Code::ALL {
            assert_eq!(Code::parse(code.as_str()), Some(*code));
            assert_eq!(code.is_repaired(), code.what_to_do().starts_with("repaired: "), "{code:?}");
            assert!(code.as_str().bytes().all(|b| b.is_ascii_lowercase() || b == b'-'));
        }
    }

    #[test]
    fn ranges_lose_what_is_taken() {
        let taken = BTreeSet::from([3, 5, 6]);
        assert_eq!(without(1, 8, &taken), [(1, 2), (4, 4), (7, 8)]);
        assert_eq!(without(3, 3, &taken), []);
        assert_eq!(without(7, 9, &taken), [(7, 9)]);
        assert_eq!(next_after(4, &[(5, 9), (10, 12), (20, 30)]), 13);
        assert!(covers(&[(5, 9)], 9) && !covers(&[(5, 9)], 10));
    }

    #[test]
    fn only_what_lasts_is_a_finding() {
        let id = ConversationId::parse("system:a").unwrap();
        let (hole, mark) = (Finding::of(Code::Hole, &id).at(3), Finding::of(Code::MarkMovedBack, &id).by("ann"));
        let now = vec![hole.clone().note("again"), hole.clone(), Finding::of(Code::Hole, &id).at(4)];
        assert_eq!(still_there(&[hole.clone(), mark], now), [hole.note("again")]);
    }
}
