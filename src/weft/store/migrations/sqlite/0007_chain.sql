-- A match is looked up within threads. The index has the thread, so that neither the commits of a
-- long thread nor the equal commits of many threads are read one by one.
DROP INDEX IF EXISTS commits_chain;

CREATE INDEX IF NOT EXISTS commits_chain_thread ON commits (chain, thread) WHERE chain IS NOT NULL;
