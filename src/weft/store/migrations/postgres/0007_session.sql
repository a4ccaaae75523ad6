-- The parent, kind and title of a thread; SQLite's script has the reasons.
ALTER TABLE thread ADD COLUMN parent BIGINT;

ALTER TABLE thread ADD COLUMN kind TEXT;

ALTER TABLE thread ADD COLUMN title TEXT;
