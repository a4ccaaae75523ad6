-- How many refs a thread has had; why stands in SQLite's script.
ALTER TABLE thread ADD COLUMN refs BIGINT NOT NULL DEFAULT 0;

UPDATE thread SET refs = (SELECT count(*) FROM ref WHERE ref.thread = thread.key);
