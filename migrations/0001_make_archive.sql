-- The archive: everything that was ever accepted, for good. Redis holds what is hot and gives out the numbers; these tables are
-- where the numbers are proven unique and where a conversation comes back from.
--
-- Ids are text with COLLATE "C": they are compared byte by byte everywhere, never by a language's rules, so that pages come in the
-- same order from every store. Times are milliseconds since 1970 UTC in bigint, as the rest of the system has them.
-- There are no foreign keys: batches of different shards arrive in any order, and a row that waits for another row would hold up a line.

-- The two numbers that are fixed when the installation is made; the primary key allows one row only.
CREATE TABLE installation (
    only_one   boolean NOT NULL DEFAULT true CONSTRAINT installation_only_one CHECK (only_one),
    shards     integer NOT NULL CONSTRAINT installation_shards_range CHECK (shards BETWEEN 1 AND 65535),
    partitions integer NOT NULL CONSTRAINT installation_partitions_range CHECK (partitions BETWEEN 1 AND 65535),
    CONSTRAINT installation_pkey PRIMARY KEY (only_one)
);

-- Which Redis server may give out numbers of a shard. Every archive batch locks its row FOR SHARE and opening an epoch updates it:
-- so nothing of a closed epoch can be archived after the range it left behind was declared void.
CREATE TABLE shard_epochs (
    shard        integer NOT NULL,
    epoch        bigint  NOT NULL CONSTRAINT shard_epochs_epoch_range CHECK (epoch BETWEEN 0 AND 2147483647),
    server_id    text    NOT NULL,
    state        text    NOT NULL CONSTRAINT shard_epochs_state_known CHECK (state IN ('opening', 'installed')),
    opened_at_ms bigint  NOT NULL,
    CONSTRAINT shard_epochs_pkey PRIMARY KEY (shard)
);

-- Blocks of numbers that Redis may give out without asking. One that is neither ended nor of the living epoch was lost with its server.
CREATE TABLE leases (
    conv_id  text COLLATE "C" NOT NULL,
    from_seq bigint  NOT NULL CONSTRAINT leases_from_range CHECK (from_seq >= 1),
    to_seq   bigint  NOT NULL,
    shard    integer NOT NULL,
    epoch    bigint  NOT NULL,
    state    text    NOT NULL CONSTRAINT leases_state_known CHECK (state IN ('proposed', 'installed', 'ended')),
    end_seq  bigint,
    CONSTRAINT leases_pkey PRIMARY KEY (conv_id, from_seq),
    CONSTRAINT leases_block_holds_a_number CHECK (to_seq >= from_seq),
    CONSTRAINT leases_ended_has_end CHECK ((state = 'ended') = (end_seq IS NOT NULL))
);

-- Numbers that will never bear a message, both ends included.
CREATE TABLE voids (
    conv_id  text COLLATE "C" NOT NULL,
    from_seq bigint NOT NULL CONSTRAINT voids_from_range CHECK (from_seq >= 1),
    to_seq   bigint NOT NULL,
    CONSTRAINT voids_pkey PRIMARY KEY (conv_id, from_seq),
    CONSTRAINT voids_range_holds_a_number CHECK (to_seq >= from_seq)
);

-- A row may be there before its facts are: head, rev and updated_at arrive with every batch, the facts with the entry that made the
-- conversation, which may stand aside for a while. facts_rev tells which facts are newer; NULL is "not yet told", and such a row is
-- no conversation for anybody.
CREATE TABLE conversations (
    id            text COLLATE "C" NOT NULL,
    shard         integer NOT NULL,
    kind          text    NOT NULL CONSTRAINT conversations_kind_known CHECK (kind IN ('single', 'group', 'system')),
    facts_rev     bigint,
    title         text,
    owner         text COLLATE "C",
    pair_low      text COLLATE "C",
    pair_high     text COLLATE "C",
    history       text    NOT NULL DEFAULT 'all' CONSTRAINT conversations_history_known CHECK (history IN ('all', 'from_join')),
    dissolved     boolean NOT NULL DEFAULT false,
    created_at_ms bigint,
    head_seq      bigint  NOT NULL CONSTRAINT conversations_head_range CHECK (head_seq >= 0),
    rev           bigint  NOT NULL CONSTRAINT conversations_rev_range CHECK (rev >= 0),
    updated_at_ms bigint  NOT NULL,
    CONSTRAINT conversations_pkey PRIMARY KEY (id),
    CONSTRAINT conversations_pair_is_whole CHECK ((pair_low IS NULL) = (pair_high IS NULL)),
    CONSTRAINT conversations_pair_is_ordered CHECK (pair_low < pair_high),
    CONSTRAINT conversations_facts_are_whole CHECK ((facts_rev IS NULL) = (created_at_ms IS NULL))
) WITH (fillfactor = 70);

-- One row for each user who ever was a member: the newest interval. rev is the change that brought the row into this state; a lower
-- one arriving later changes nothing.
CREATE TABLE members (
    conv_id      text COLLATE "C" NOT NULL,
    user_id      text COLLATE "C" NOT NULL,
    role         text   NOT NULL CONSTRAINT members_role_known CHECK (role IN ('owner', 'member')),
    joined_at_ms bigint NOT NULL,
    joined_seq   bigint NOT NULL CONSTRAINT members_joined_seq_range CHECK (joined_seq >= 0),
    joined_rev   bigint NOT NULL CONSTRAINT members_joined_rev_range CHECK (joined_rev >= 0),
    left_rev     bigint,
    rev          bigint NOT NULL,
    CONSTRAINT members_pkey PRIMARY KEY (conv_id, user_id),
    CONSTRAINT members_leave_after_joining CHECK (left_rev >= joined_rev)
);
-- A user's list of conversations is rebuilt from this when its index in Redis is lost.
CREATE INDEX members_current_of_user ON members (user_id, conv_id) WHERE left_rev IS NULL;

-- Read watermarks; they only ever rise, with every message for its sender. Room in each page lets a new version stand beside the old
-- one without touching the index (so too in conversations).
CREATE TABLE read_marks (
    conv_id text COLLATE "C" NOT NULL,
    user_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL CONSTRAINT read_marks_seq_range CHECK (seq >= 0),
    at_ms   bigint NOT NULL,
    CONSTRAINT read_marks_pkey PRIMARY KEY (conv_id, user_id)
) WITH (fillfactor = 70);

-- A creator's idempotency key first reserves the id of the group; making a reserved id is idempotent.
CREATE TABLE group_reservations (
    creator     text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    conv_id     text COLLATE "C" NOT NULL,
    CONSTRAINT group_reservations_pkey PRIMARY KEY (creator, key)
);

-- The primary key is the last proof that a number was given once, messages_key_once that a key names one message. Both must hold over
-- the whole table, so it is partitioned by the conversation and not by time. The timeline has no key: NULLs never collide.
-- content holds what only some messages have: {"data", "client_sent_at", "deleted_by"}; NULL when there is nothing of it.
CREATE TABLE messages (
    conv_id       text COLLATE "C" NOT NULL,
    seq           bigint NOT NULL CONSTRAINT messages_seq_range CHECK (seq BETWEEN 1 AND 9007199254740991),
    id            uuid   NOT NULL,
    sender        text COLLATE "C" NOT NULL,
    client_id     text COLLATE "C",
    kind          text   NOT NULL CONSTRAINT messages_kind_known CHECK (kind IN ('text', 'image', 'share', 'system')),
    body          text   NOT NULL,
    content       jsonb,
    fingerprint   text,
    rev           bigint NOT NULL CONSTRAINT messages_rev_range CHECK (rev >= 0),
    created_at_ms bigint NOT NULL,
    edited_at_ms  bigint,
    deleted_at_ms bigint,
    CONSTRAINT messages_pkey PRIMARY KEY (conv_id, seq),
    CONSTRAINT messages_key_once UNIQUE (conv_id, sender, client_id)
) PARTITION BY HASH (conv_id);

CREATE TABLE messages_p00 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 0);
CREATE TABLE messages_p01 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 1);
CREATE TABLE messages_p02 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 2);
CREATE TABLE messages_p03 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 3);
CREATE TABLE messages_p04 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 4);
CREATE TABLE messages_p05 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 5);
CREATE TABLE messages_p06 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 6);
CREATE TABLE messages_p07 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 7);
CREATE TABLE messages_p08 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 8);
CREATE TABLE messages_p09 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 9);
CREATE TABLE messages_p10 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 10);
CREATE TABLE messages_p11 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 11);
CREATE TABLE messages_p12 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 12);
CREATE TABLE messages_p13 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 13);
CREATE TABLE messages_p14 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 14);
CREATE TABLE messages_p15 PARTITION OF messages FOR VALUES WITH (MODULUS 16, REMAINDER 15);

-- What changed since a rev, for clients that held a conversation already.
CREATE INDEX messages_by_rev ON messages (conv_id, rev);
-- The few messages that never count as unread; the rest is arithmetic on numbers.
CREATE INDEX messages_uncounted ON messages (conv_id, seq) WHERE kind = 'system' OR deleted_at_ms IS NOT NULL;
