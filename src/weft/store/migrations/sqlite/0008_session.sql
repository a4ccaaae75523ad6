-- A thread that belongs to another one, such as a subagent's: the key of its parent and what it is
-- for. `title` is the title that a client generated for its session.
ALTER TABLE thread ADD COLUMN parent INTEGER;

ALTER TABLE thread ADD COLUMN kind TEXT;

ALTER TABLE thread ADD COLUMN title TEXT;
