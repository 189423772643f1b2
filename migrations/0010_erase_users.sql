-- Erasing users. What the host application asks for is written down here and answered; the work, which may be long, is done by whatever
-- worker comes first, in small steps, and can go on wherever the one before was cut off.

-- The newest request about each user. It stays when it is done: versions of words and names out of tokens that arrive late are told by it
-- from those of somebody who came back. Who works on one moves free_at_ms ahead instead of holding a lock; a worker that dies leaves a
-- request that is free again then.
CREATE TABLE erasures (
    user_id        text COLLATE "C" NOT NULL,
    asked_by       text COLLATE "C" NOT NULL,
    asked_at_ms    bigint  NOT NULL,
    finished_at_ms bigint,
    listed         boolean NOT NULL DEFAULT false,
    messages       bigint  NOT NULL DEFAULT 0 CONSTRAINT erasures_messages_range CHECK (messages >= 0),
    free_at_ms     bigint  NOT NULL,
    claim          uuid,
    CONSTRAINT erasures_pkey PRIMARY KEY (user_id)
) WITH (fillfactor = 70);
CREATE INDEX erasures_running ON erasures (free_at_ms) WHERE finished_at_ms IS NULL;

-- A row for each conversation that is still to be gone through. has_left: the user is out of it. Messages from below_seq up are done. told
-- of them were told of one by one, the others not; untold_seq is one of those, by which readers are told to read again in the end. What
-- failed comes after the others, so that one conversation that cannot be changed for the time holds up none of them.
CREATE TABLE erasure_steps (
    user_id    text COLLATE "C" NOT NULL,
    conv_id    text COLLATE "C" NOT NULL,
    has_left   boolean NOT NULL DEFAULT false,
    below_seq  bigint  NOT NULL DEFAULT 9007199254740991 CONSTRAINT erasure_steps_below_range CHECK (below_seq >= 0),
    told       bigint  NOT NULL DEFAULT 0,
    untold_seq bigint,
    failures   integer NOT NULL DEFAULT 0,
    CONSTRAINT erasure_steps_pkey PRIMARY KEY (user_id, conv_id)
);

-- Where a user ever was: current memberships have an index already; who sends has a watermark, member or not.
CREATE INDEX members_past_of_user ON members (user_id, conv_id) WHERE left_rev IS NOT NULL;
CREATE INDEX read_marks_of_user ON read_marks (user_id, conv_id);
CREATE INDEX media_of_owner ON media (owner);
