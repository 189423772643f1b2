-- Search. What a message is found by is worked out by the product, not by Postgres: its text search configurations know no Chinese or
-- Japanese, trigrams find nothing shorter than three characters, and both hang on the database's locale. Postgres keeps the terms and
-- finds them.
--
-- A row for each message that can be found; no terms when it no longer can be: deleted ones keep their row, so that a slower writer's
-- older version cannot bring them back. Each term begins with five letters that stand for its conversation: what others say, however
-- much, costs a search nothing. created_at_ms never changes, so it may stand in the key: a conversation is walked newest first.
CREATE TABLE message_terms (
    conv_id       text COLLATE "C" NOT NULL,
    created_at_ms bigint   NOT NULL,
    seq           bigint   NOT NULL,
    rev           bigint   NOT NULL,
    terms         tsvector NOT NULL,
    CONSTRAINT message_terms_pkey PRIMARY KEY (conv_id, created_at_ms, seq)
);
-- A list of what waits to be merged would be read by every look into the index, several hundred times in one search.
CREATE INDEX message_terms_by_term ON message_terms USING gin (terms) WITH (fastupdate = off);

-- Messages whose terms are to be worked out, a row for each statement that wrote messages: it costs the archive next to nothing, where
-- the index itself would cost it more than all the rest. A trigger, so that whoever writes messages, now or later, also a release that
-- knows nothing of search, cannot forget it.
CREATE TABLE search_queue (
    id           bigint GENERATED ALWAYS AS IDENTITY,
    queued_at_ms bigint   NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    conv_ids     text[]   NOT NULL,
    seqs         bigint[] NOT NULL,
    CONSTRAINT search_queue_pkey PRIMARY KEY (id),
    CONSTRAINT search_queue_pairs CHECK (cardinality(conv_ids) = cardinality(seqs))
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION queue_new_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO search_queue (conv_ids, seqs)
    SELECT array_agg(n.conv_id), array_agg(n.seq) FROM fresh AS n WHERE n.kind <> 'system' HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_queue_new AFTER INSERT ON messages REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION queue_new_messages();

CREATE FUNCTION queue_changed_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO search_queue (conv_ids, seqs)
    SELECT array_agg(n.conv_id), array_agg(n.seq)
    FROM fresh AS n JOIN stale AS o ON o.conv_id = n.conv_id AND o.seq = n.seq
    WHERE n.kind <> 'system' AND (n.body, n.deleted_at_ms IS NULL) IS DISTINCT FROM (o.body, o.deleted_at_ms IS NULL)
    HAVING count(*) > 0;
    RETURN NULL;
END $$;
CREATE TRIGGER messages_queue_changed AFTER UPDATE ON messages REFERENCING OLD TABLE AS stale NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION queue_changed_messages();

-- What was archived before there was a search.
INSERT INTO search_queue (conv_ids, seqs)
SELECT array_agg(conv_id), array_agg(seq) FROM messages WHERE kind <> 'system' GROUP BY conv_id, seq / 500;
