-- The text index is made of segments, each of up to a few thousand commits. `history/text_index.py`
-- defines what is in a block; the store only keeps it. The key of a block is
-- bucket * 2^32 + segment, so one bucket of all segments is one range.
DROP TABLE IF EXISTS fulltext;

-- Numbers are never used again, so that a merge of segments that are gone is noticed.
CREATE TABLE index_segment (key INTEGER PRIMARY KEY AUTOINCREMENT, size INTEGER NOT NULL);

CREATE TABLE index_block (
    key INTEGER PRIMARY KEY,
    terms BLOB NOT NULL,
    postings BLOB NOT NULL
);

-- The commits of a thread in a segment; `low` and `high` are the first and last of `keys`.
CREATE TABLE index_commit (
    thread INTEGER NOT NULL,
    segment INTEGER NOT NULL,
    first INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    keys BLOB NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (thread, segment)
);

CREATE INDEX index_commit_segment ON index_commit (segment);

-- Commits up to `indexed.last` whose segment was removed, so that they are indexed again.
CREATE TABLE index_pending (key INTEGER PRIMARY KEY);

UPDATE indexed SET last = 0;
