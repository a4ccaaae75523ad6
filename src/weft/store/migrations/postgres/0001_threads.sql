-- The tables of SQLite, in PostgreSQL's words; why they are as they are stands there.
CREATE TABLE thread (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    head TEXT NOT NULL,
    checkpoints INTEGER NOT NULL,
    scope TEXT,
    created DOUBLE PRECISION NOT NULL
);

CREATE TABLE entry (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id BYTEA NOT NULL UNIQUE,
    data BYTEA NOT NULL
);

CREATE TABLE line (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    base_line BIGINT,
    base_depth BIGINT
);

CREATE TABLE commits (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread BIGINT NOT NULL REFERENCES thread (key),
    id BYTEA NOT NULL,
    line BIGINT NOT NULL REFERENCES line (key),
    depth BIGINT NOT NULL,
    kind TEXT NOT NULL,
    parent BIGINT,
    second BIGINT,
    entry BIGINT REFERENCES entry (key),
    data BYTEA NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    usage BYTEA,
    chain BYTEA,
    checksum BIGINT,
    UNIQUE (thread, id),
    UNIQUE (line, depth)
);

CREATE INDEX commits_chain ON commits (chain) WHERE chain IS NOT NULL;

CREATE TABLE commit_entry (
    commit_key BIGINT NOT NULL,
    position BIGINT NOT NULL,
    entry BIGINT NOT NULL REFERENCES entry (key),
    PRIMARY KEY (commit_key, position)
);

CREATE TABLE ref (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    thread BIGINT NOT NULL REFERENCES thread (key),
    name TEXT NOT NULL,
    target BIGINT,
    UNIQUE (thread, name)
);

CREATE TABLE operation (
    thread BIGINT NOT NULL REFERENCES thread (key),
    seq BIGINT NOT NULL,
    verb TEXT NOT NULL,
    ref BIGINT NOT NULL REFERENCES ref (key),
    old BIGINT,
    new BIGINT,
    was TEXT,
    created DOUBLE PRECISION,
    checksum BIGINT,
    PRIMARY KEY (thread, seq)
);

CREATE TABLE checkpoint (
    thread BIGINT NOT NULL REFERENCES thread (key),
    name TEXT NOT NULL,
    PRIMARY KEY (thread, name)
);

-- A long text is several rows: a position in a tsvector ends at 16383.
CREATE TABLE fulltext (
    commit_key BIGINT NOT NULL,
    words TSVECTOR NOT NULL
);

CREATE INDEX fulltext_words ON fulltext USING gin (words);

CREATE INDEX fulltext_key ON fulltext (commit_key);

CREATE TABLE indexed (last BIGINT NOT NULL);

INSERT INTO indexed VALUES (0);

CREATE TABLE tombstone (
    kind TEXT NOT NULL,
    id BYTEA NOT NULL,
    reason TEXT NOT NULL,
    checksum BIGINT NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (kind, id)
);
