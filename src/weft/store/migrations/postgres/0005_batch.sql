-- Operations that were logged as one step; SQLite's script has the reasons.
CREATE TABLE batch (
    thread BIGINT NOT NULL,
    last BIGINT NOT NULL,
    first BIGINT NOT NULL,
    PRIMARY KEY (thread, last)
);
