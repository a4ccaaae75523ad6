-- Integers inside, hashes as unique indexes: a hash as the key of every table costs
-- half as much again in bytes and in time.
CREATE TABLE thread (
    key INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    head TEXT NOT NULL,
    checkpoints INTEGER NOT NULL,
    scope TEXT,
    created REAL NOT NULL
);

CREATE TABLE entry (
    key INTEGER PRIMARY KEY,
    id BLOB NOT NULL UNIQUE,
    data BLOB NOT NULL
);

-- A run of first parents; `base_line` and `base_depth` are where it left another line.
CREATE TABLE line (
    key INTEGER PRIMARY KEY,
    base_line INTEGER,
    base_depth INTEGER
);

-- `entry` is the one entry of an append; other kinds list theirs in commit_entry.
CREATE TABLE commits (
    key INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL REFERENCES thread (key),
    id BLOB NOT NULL,
    line INTEGER NOT NULL REFERENCES line (key),
    depth INTEGER NOT NULL,
    kind TEXT NOT NULL,
    parent INTEGER REFERENCES commits (key),
    second INTEGER REFERENCES commits (key),
    entry INTEGER REFERENCES entry (key),
    data BLOB NOT NULL,
    created REAL NOT NULL,
    usage BLOB,
    chain BLOB,
    UNIQUE (thread, id),
    UNIQUE (line, depth)
);

CREATE INDEX commits_chain ON commits (chain) WHERE chain IS NOT NULL;

CREATE TABLE commit_entry (
    commit_key INTEGER NOT NULL REFERENCES commits (key),
    position INTEGER NOT NULL,
    entry INTEGER NOT NULL REFERENCES entry (key),
    PRIMARY KEY (commit_key, position)
) WITHOUT ROWID;

-- A branch that was deleted keeps its row, pointing nowhere, for the operations that name it.
CREATE TABLE ref (
    key INTEGER PRIMARY KEY,
    thread INTEGER NOT NULL REFERENCES thread (key),
    name TEXT NOT NULL,
    target INTEGER REFERENCES commits (key),
    UNIQUE (thread, name)
);

CREATE TABLE operation (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    thread INTEGER NOT NULL REFERENCES thread (key),
    verb TEXT NOT NULL,
    ref INTEGER NOT NULL REFERENCES ref (key),
    old INTEGER REFERENCES commits (key),
    new INTEGER REFERENCES commits (key),
    was TEXT,
    created REAL NOT NULL
);

CREATE INDEX operation_thread ON operation (thread, key);

-- Every checkpoint that was ever given out: an id is unique over all branches.
CREATE TABLE checkpoint (
    thread INTEGER NOT NULL REFERENCES thread (key),
    name TEXT NOT NULL,
    PRIMARY KEY (thread, name)
) WITHOUT ROWID;

CREATE VIRTUAL TABLE fulltext USING fts5 (text, content = '', tokenize = 'unicode61');

CREATE TABLE indexed (last INTEGER NOT NULL);

INSERT INTO indexed VALUES (0);
