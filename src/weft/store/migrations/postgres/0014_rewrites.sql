-- The commits that do more than append a message; SQLite's script has the reason.
CREATE INDEX IF NOT EXISTS commits_rewrite ON commits (line, depth) WHERE kind <> 'append';
