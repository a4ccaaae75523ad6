-- Answers that were stopped, cut off or failed. An attempt belongs to the commit of its request
-- and to no branch, so nothing that compiles a branch reads this table.
CREATE TABLE attempt (
    key INTEGER PRIMARY KEY,
    commit_key INTEGER NOT NULL REFERENCES commits (key),
    state TEXT NOT NULL,
    data BLOB NOT NULL,
    created REAL NOT NULL,
    checksum INTEGER NOT NULL
);

CREATE INDEX attempt_commit ON attempt (commit_key);
