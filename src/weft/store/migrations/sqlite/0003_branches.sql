-- How many refs a thread has had. None is ever deleted, so one that is missing is lost: without
-- this count a branch whose row is gone looks like one that never was.
ALTER TABLE thread ADD COLUMN refs INTEGER NOT NULL DEFAULT 0;

UPDATE thread SET refs = (
    SELECT count(*) FROM (
        SELECT key FROM ref WHERE ref.thread = thread.key
        UNION SELECT ref FROM operation WHERE operation.thread = thread.key
    )
);
