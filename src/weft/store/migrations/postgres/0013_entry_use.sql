-- Which commits use an entry; SQLite's script has the reason.
CREATE INDEX IF NOT EXISTS commits_entry ON commits (entry) WHERE entry IS NOT NULL;

CREATE INDEX IF NOT EXISTS commit_entry_entry ON commit_entry (entry);

-- Words that join scripts with and without spaces are split where the script changes. The text index
-- is filled again.
DELETE FROM index_segment;

DELETE FROM index_commit;

DELETE FROM index_block;

DELETE FROM index_pending;

UPDATE indexed SET last = 0;
