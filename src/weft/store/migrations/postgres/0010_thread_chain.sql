-- Matches within threads, on few pages; SQLite's script has the reasons.
DROP INDEX IF EXISTS commits_chain_thread;

CREATE INDEX IF NOT EXISTS commits_thread_chain ON commits (thread, chain) WHERE chain IS NOT NULL;
