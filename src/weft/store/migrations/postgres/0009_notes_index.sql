-- As in SQLite.
DELETE FROM index_segment;

DELETE FROM index_commit;

DELETE FROM index_block;

DELETE FROM index_pending;

UPDATE indexed SET last = 0;
