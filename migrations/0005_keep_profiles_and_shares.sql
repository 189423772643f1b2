-- What the host application tells about its users and about the things that messages share: both are looked up when they are shown, and
-- stand nowhere else, so that one change shows everywhere.

-- A field that the host's service has set is the service's for good, null included; the others are filled from the claims of the last token
-- seen. name_folded is the name in lower case as the program folds it: what the database calls lower case hangs on its locale.
CREATE TABLE profiles (
    user_id       text COLLATE "C" NOT NULL,
    name          text,
    name_folded   text,
    name_set      boolean NOT NULL,
    avatar_url    text,
    avatar_set    boolean NOT NULL,
    updated_at_ms bigint  NOT NULL,
    CONSTRAINT profiles_pkey PRIMARY KEY (user_id),
    CONSTRAINT profiles_name_has_its_fold CHECK ((name IS NULL) = (name_folded IS NULL))
);

-- What a message of kind 'share' points to. One that is gone keeps its row: messages say then that it was deleted, which is another thing
-- than never having been told of it. A row is only about the future: a deletion may come before the first telling.
CREATE TABLE shared_items (
    type          text COLLATE "C" NOT NULL,
    id            text COLLATE "C" NOT NULL,
    title         text,
    url           text,
    image_url     text,
    gone          boolean NOT NULL,
    updated_at_ms bigint  NOT NULL,
    CONSTRAINT shared_items_pkey PRIMARY KEY (type, id),
    CONSTRAINT shared_items_gone_or_told CHECK (gone = (title IS NULL) AND gone = (url IS NULL))
);
