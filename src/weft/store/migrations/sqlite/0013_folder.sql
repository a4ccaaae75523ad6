-- The project folder in which a client or a command of Weft started the thread.
ALTER TABLE thread ADD COLUMN folder TEXT;
