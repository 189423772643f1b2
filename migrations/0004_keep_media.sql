-- Pictures: who uploaded what, which messages show it, and which sends are about to. Their bytes lie elsewhere (a folder or a bucket), so the
-- order of the two decides what a crash leaves: the row comes first and goes last, and no object is ever without one.
--
-- state: 'uploading' until the bytes are stored, then 'ready'; 'sweeping' while they are being removed. check_at_ms is when the sweeper looks
-- next; NULL while messages show the picture, so that what is in use costs nothing. doomed says that it was found unused once already: it is
-- removed when it is found so a second time, which gives an archive that was away the time to catch up.
CREATE TABLE media (
    id            uuid    NOT NULL,
    owner         text COLLATE "C" NOT NULL,
    state         text    NOT NULL CONSTRAINT media_state_known CHECK (state IN ('uploading', 'ready', 'sweeping')),
    mime_type     text    NOT NULL CONSTRAINT media_mime_type_known CHECK (mime_type IN ('image/png', 'image/jpeg', 'image/gif', 'image/webp')),
    size          bigint  NOT NULL CONSTRAINT media_size_range CHECK (size > 0),
    width         integer NOT NULL CONSTRAINT media_width_range CHECK (width > 0),
    height        integer NOT NULL CONSTRAINT media_height_range CHECK (height > 0),
    created_at_ms bigint  NOT NULL,
    check_at_ms   bigint,
    doomed        boolean NOT NULL DEFAULT false,
    CONSTRAINT media_pkey PRIMARY KEY (id)
);
CREATE INDEX media_to_check ON media (check_at_ms) WHERE check_at_ms IS NOT NULL;

-- Which messages show a picture: written in the transaction that writes the message's row, by the same rule of versions. A row for each use,
-- not a counter: a counter that was wrong once stays wrong, and "may this reader see it" needs the places anyway.
CREATE TABLE message_media (
    conv_id  text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    media_id uuid   NOT NULL,
    CONSTRAINT message_media_pkey PRIMARY KEY (conv_id, seq, media_id)
);
CREATE INDEX message_media_of_picture ON message_media (media_id);

-- A message that shows pictures is read by others before the archive has its row. So the check that the pictures are the sender's leaves a
-- claim for this message before it gets its number (seq is NULL then; an edit knows it); the archive's row replaces it. Of a send that failed
-- it stays until until_ms.
CREATE TABLE media_claims (
    media_id   uuid   NOT NULL,
    message_id uuid   NOT NULL,
    conv_id    text COLLATE "C" NOT NULL,
    seq        bigint,
    made_at_ms bigint NOT NULL,
    until_ms   bigint NOT NULL,
    CONSTRAINT media_claims_pkey PRIMARY KEY (media_id, message_id)
);
