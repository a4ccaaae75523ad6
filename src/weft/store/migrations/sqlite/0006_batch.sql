-- Operations that were logged as one step: those of a thread from `first` to `last`. Ranges of one
-- thread do not overlap, so the key finds the batches around any operation.
CREATE TABLE batch (
    thread INTEGER NOT NULL REFERENCES thread (key),
    last INTEGER NOT NULL,
    first INTEGER NOT NULL,
    PRIMARY KEY (thread, last)
) WITHOUT ROWID;
