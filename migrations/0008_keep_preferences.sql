-- What members have set for themselves, and who of a pair has blocked the other one. Redis decides about both in the step that tells of
-- them; here they come back from when a conversation has left it.

-- Preferences belong to one membership, named by the rev of its join: of a row that belongs to an earlier one nothing holds, and nobody has
-- to take it away. hidden_to is the conversation's head when it was hidden and marked_at the watermark when it was marked unread; both end
-- where the next message or read comes, without a write.
CREATE TABLE preferences (
    conv_id    text COLLATE "C" NOT NULL,
    user_id    text COLLATE "C" NOT NULL,
    joined_rev bigint  NOT NULL,
    muted      boolean NOT NULL,
    pinned     boolean NOT NULL,
    hidden_to  bigint,
    marked_at  bigint,
    cleared_to bigint  NOT NULL CONSTRAINT preferences_cleared_to_range CHECK (cleared_to >= 0),
    rev        bigint  NOT NULL,
    CONSTRAINT preferences_pkey PRIMARY KEY (conv_id, user_id)
);

-- since_ms is NULL once a block was lifted. The row stays: it tells that a pair's conversation may have been made by the block alone, so
-- that it is nobody's to list before there is a message; and an older state that arrives late finds a newer one.
CREATE TABLE blocks (
    blocker  text COLLATE "C" NOT NULL,
    blocked  text COLLATE "C" NOT NULL,
    conv_id  text COLLATE "C" NOT NULL,
    since_ms bigint,
    rev      bigint NOT NULL,
    CONSTRAINT blocks_pkey PRIMARY KEY (blocker, blocked)
);

-- The messages that name somebody are few, and are counted for each reader.
CREATE INDEX messages_naming ON messages (conv_id, seq) WHERE content ? 'mentions' AND deleted_at_ms IS NULL;
