-- What messages said before their words were changed or taken back: for moderators alone. A version is named by the message's rev at that
-- time, so a batch that comes twice writes it once.
CREATE TABLE message_versions (
    conv_id text COLLATE "C" NOT NULL,
    seq     bigint NOT NULL,
    rev     bigint NOT NULL,
    at_ms   bigint NOT NULL,
    body    text   NOT NULL,
    media   uuid[] NOT NULL,
    CONSTRAINT message_versions_pkey PRIMARY KEY (conv_id, seq, rev)
);
