-- The log of a thread is its own tree: one page a landing, where a table with an index takes two.
-- A line that has no time of its own has that of the commit it leads to.
CREATE TABLE log (
    thread INTEGER NOT NULL REFERENCES thread (key),
    seq INTEGER NOT NULL,
    verb TEXT NOT NULL,
    ref INTEGER NOT NULL REFERENCES ref (key),
    old INTEGER REFERENCES commits (key),
    new INTEGER REFERENCES commits (key),
    was TEXT,
    created REAL,
    checksum INTEGER,
    PRIMARY KEY (thread, seq)
) WITHOUT ROWID;

INSERT INTO log
SELECT thread, row_number() OVER (PARTITION BY thread ORDER BY key),
    verb, ref, old, new, was, created, NULL
FROM operation;

DROP TABLE operation;

ALTER TABLE log RENAME TO operation;

-- Over the columns that no id covers. Rows that are older than the column have none.
ALTER TABLE commits ADD COLUMN checksum INTEGER;

-- Objects whose bytes are no longer those of their id, and why: `forgotten` or `damaged`.
CREATE TABLE tombstone (
    kind TEXT NOT NULL,
    id BLOB NOT NULL,
    reason TEXT NOT NULL,
    checksum INTEGER NOT NULL,
    created REAL NOT NULL,
    PRIMARY KEY (kind, id)
) WITHOUT ROWID;
