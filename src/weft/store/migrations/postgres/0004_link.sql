-- Commits by keys that the caller makes; why stands in SQLite's script.
CREATE TABLE link (
    key BYTEA NOT NULL,
    commit_key BIGINT NOT NULL,
    PRIMARY KEY (key, commit_key)
);

CREATE INDEX link_commit ON link (commit_key);

CREATE INDEX ref_target ON ref (target);
