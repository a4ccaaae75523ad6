-- Matches within threads; SQLite's script has the reasons.
DROP INDEX IF EXISTS commits_chain;

CREATE INDEX IF NOT EXISTS commits_chain_thread ON commits (chain, thread) WHERE chain IS NOT NULL;
