-- Web Push: which browsers want to be woken for whom, and for what they still have to be. No words are kept here: what a push says is
-- looked up when it is sent, as its reader may see it then.

-- An endpoint is a browser's; it belongs to whoever registered it last, because whoever is signed in there now is who reads what it shows.
CREATE TABLE push_subscriptions (
    id               uuid    NOT NULL,
    endpoint         text COLLATE "C" NOT NULL,
    host             text COLLATE "C" NOT NULL,
    user_id          text COLLATE "C" NOT NULL,
    device           text,
    p256dh           bytea   NOT NULL CONSTRAINT push_subscriptions_p256dh_length CHECK (length(p256dh) = 65),
    auth             bytea   NOT NULL CONSTRAINT push_subscriptions_auth_length CHECK (length(auth) = 16),
    show_preview     boolean NOT NULL,
    created_at_ms    bigint  NOT NULL,
    registered_at_ms bigint  NOT NULL,
    CONSTRAINT push_subscriptions_pkey PRIMARY KEY (id),
    CONSTRAINT push_subscriptions_endpoint_key UNIQUE (endpoint)
);
CREATE INDEX push_subscriptions_of_user ON push_subscriptions (user_id, registered_at_ms);

-- One row for each conversation that was written in: up to where its members' browsers were looked for. The archive's own transaction moves
-- head_seq, and nothing else, however many members there are. The row stays, so that a batch that is archived again finds nothing new.
-- queued_at_ms is since when something waits. Who works on one moves free_at_ms ahead; a worker that dies leaves a line that is free then.
CREATE TABLE push_lines (
    conv_id      text COLLATE "C" NOT NULL,
    head_seq     bigint NOT NULL,
    done_seq     bigint NOT NULL,
    queued_at_ms bigint NOT NULL,
    free_at_ms   bigint NOT NULL DEFAULT 0,
    CONSTRAINT push_lines_pkey PRIMARY KEY (conv_id)
) WITH (fillfactor = 70);
CREATE INDEX push_lines_waiting ON push_lines (queued_at_ms) WHERE head_seq > done_seq;

-- One row for each browser and conversation, however much is said there: seq is the newest message that it is to be woken for, sent_seq the
-- newest that it was woken for. The row stays a while after that, so that the next push of a busy conversation is not too soon: sent counts
-- pushes in a row, named says that what waits names the user. tries counts failures.
CREATE TABLE push_queue (
    subscription_id uuid    NOT NULL CONSTRAINT push_queue_subscription REFERENCES push_subscriptions ON DELETE CASCADE,
    conv_id         text COLLATE "C" NOT NULL,
    user_id         text COLLATE "C" NOT NULL,
    host            text COLLATE "C" NOT NULL,
    seq             bigint  NOT NULL,
    sent_seq        bigint  NOT NULL DEFAULT 0,
    named           boolean NOT NULL,
    queued_at_ms    bigint  NOT NULL,
    sent_at_ms      bigint  NOT NULL DEFAULT 0,
    free_at_ms      bigint  NOT NULL,
    claim           uuid,
    tries           integer NOT NULL DEFAULT 0,
    sent            integer NOT NULL DEFAULT 0,
    CONSTRAINT push_queue_pkey PRIMARY KEY (subscription_id, conv_id)
) WITH (fillfactor = 70);
CREATE INDEX push_queue_waiting ON push_queue (free_at_ms) WHERE seq > sent_seq;
CREATE INDEX push_queue_resting ON push_queue (free_at_ms) WHERE seq <= sent_seq;
CREATE INDEX push_queue_of_conversation ON push_queue (conv_id, user_id);
