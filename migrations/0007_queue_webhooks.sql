-- Events that wait to be posted to the host application. They are put here by the very transaction that archives what happened, so that an
-- event is queued exactly when the archive has it; taken by workers, one conversation each at a time; deleted when the host has them.
-- Empty, and never written to, while webhooks are off.

-- place is the event's place among those of one change. body is the event as JSON, as it was when it was queued; seq is the message it
-- shows, 0 for none: before it is sent, that message's row is asked whether its words still stand.
CREATE TABLE webhook_queue (
    conv_id      text COLLATE "C" NOT NULL,
    rev          bigint   NOT NULL,
    place        smallint NOT NULL,
    type         text     NOT NULL,
    seq          bigint   NOT NULL CONSTRAINT webhook_queue_seq_range CHECK (seq >= 0),
    body         text     NOT NULL,
    queued_at_ms bigint   NOT NULL,
    CONSTRAINT webhook_queue_pkey PRIMARY KEY (conv_id, rev, place)
);
-- How old the oldest one is, for those who watch.
CREATE INDEX webhook_queue_by_age ON webhook_queue (queued_at_ms);

-- One row for each conversation with something waiting: what is claimed is the conversation, never a single event, so that its events
-- cannot overtake each other. Who claims it moves free_at_ms ahead instead of holding a lock through a call over the network; a worker
-- that dies leaves a line that is free again then. tries counts failures of the event at its head.
CREATE TABLE webhook_lines (
    conv_id    text COLLATE "C" NOT NULL,
    free_at_ms bigint  NOT NULL,
    claim      uuid,
    tries      integer NOT NULL DEFAULT 0,
    CONSTRAINT webhook_lines_pkey PRIMARY KEY (conv_id)
) WITH (fillfactor = 70);
CREATE INDEX webhook_lines_free ON webhook_lines (free_at_ms);

-- What was given up, without its words. Kept for a month, for whoever wants to know what the host never heard of.
CREATE TABLE webhook_dead (
    conv_id      text COLLATE "C" NOT NULL,
    rev          bigint   NOT NULL,
    place        smallint NOT NULL,
    type         text     NOT NULL,
    queued_at_ms bigint   NOT NULL,
    dead_at_ms   bigint   NOT NULL,
    reason       text     NOT NULL,
    CONSTRAINT webhook_dead_pkey PRIMARY KEY (conv_id, rev, place)
);
CREATE INDEX webhook_dead_by_age ON webhook_dead (dead_at_ms);
