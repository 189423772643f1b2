-- Old messages are brought into a conversation while it is out of Redis: rows above its head, a chunk in each transaction. A row here keeps
-- Redis from being given numbers of that conversation meanwhile. It stays until the members were told, so that an import which was cut off
-- is known as such when it comes again; but it bars nobody longer than a few seconds after its importer last showed a sign of life.
CREATE TABLE imports (
    conv_id       text COLLATE "C" NOT NULL,
    token         uuid   NOT NULL,
    touched_at_ms bigint NOT NULL,
    CONSTRAINT imports_pkey PRIMARY KEY (conv_id)
);

-- Who wrote imported messages need not be a member, now or ever. Whoever looks for everything that somebody wrote finds these here.
CREATE TABLE import_senders (
    user_id text COLLATE "C" NOT NULL,
    conv_id text COLLATE "C" NOT NULL,
    CONSTRAINT import_senders_pkey PRIMARY KEY (user_id, conv_id)
);
