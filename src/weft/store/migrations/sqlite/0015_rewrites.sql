-- The commits that do more than append a message. A compile replays them, and of the others it reads
-- only those whose messages are still there.
CREATE INDEX IF NOT EXISTS commits_rewrite ON commits (line, depth) WHERE kind <> 'append';
