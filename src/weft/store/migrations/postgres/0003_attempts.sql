-- Answers that were stopped, cut off or failed; the SQLite script explains the table.
CREATE TABLE attempt (
    key BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    commit_key BIGINT NOT NULL,
    state TEXT NOT NULL,
    data BYTEA NOT NULL,
    created DOUBLE PRECISION NOT NULL,
    checksum BIGINT NOT NULL
);

CREATE INDEX attempt_commit ON attempt (commit_key);
