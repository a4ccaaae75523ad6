-- A match is looked up within threads only. With the thread first, the new keys of a thread are on
-- the same page; with the chain first, each was on a page of its own, however large the store.
DROP INDEX IF EXISTS commits_chain_thread;

CREATE INDEX IF NOT EXISTS commits_thread_chain ON commits (thread, chain) WHERE chain IS NOT NULL;
