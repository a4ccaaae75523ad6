-- The agent that answers in the thread in the page; NULL: Weft's own.
ALTER TABLE thread ADD COLUMN agent TEXT;
