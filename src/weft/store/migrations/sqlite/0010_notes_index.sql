-- The text index has the notes and metadata of commits too. It is filled again by the next search.
DELETE FROM index_segment;

DELETE FROM index_commit;

DELETE FROM index_block;

DELETE FROM index_pending;

UPDATE indexed SET last = 0;
