-- As in SQLite.
DROP TABLE IF EXISTS fulltext;

CREATE TABLE index_segment (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    size BIGINT NOT NULL
);

CREATE TABLE index_block (
    key BIGINT PRIMARY KEY,
    terms BYTEA NOT NULL,
    postings BYTEA NOT NULL
);

-- The commits of a thread in a segment; `low` and `high` are the first and last of `keys`.
CREATE TABLE index_commit (
    thread BIGINT NOT NULL,
    segment BIGINT NOT NULL,
    first BIGINT NOT NULL,
    low BIGINT NOT NULL,
    high BIGINT NOT NULL,
    keys BYTEA NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (thread, segment)
);

CREATE INDEX index_commit_segment ON index_commit (segment);

-- Commits up to `indexed.last` whose segment was removed, so that they are indexed again.
CREATE TABLE index_pending (key BIGINT PRIMARY KEY);

UPDATE indexed SET last = 0;
