-- Commits by keys that the caller makes (hashes of session names, call ids, contexts). The key
-- alone says nothing, and rows of one key stand beside each other, the newest commit last.
CREATE TABLE link (
    key BLOB NOT NULL,
    commit_key INTEGER NOT NULL REFERENCES commits (key),
    PRIMARY KEY (key, commit_key)
) WITHOUT ROWID;

CREATE INDEX link_commit ON link (commit_key);

-- Which branches point at a commit, without reading all branches of a thread.
CREATE INDEX ref_target ON ref (target);
