"""The schema's history: numbered SQL files for each database, never changed once released.

A file's number is the schema version it leads to (SQLite's `user_version`, PostgreSQL's table
`weft_schema`). A store written by a newer Weft is refused.
"""

from pathlib import Path


def scripts(database: str) -> list[list[str]]:
    """The statements of every version for `sqlite` or `postgres`, oldest first."""
    # importlib.resources would take 10 ms to import, on every start of a command.
    texts = [path.read_text() for path in sorted(Path(__file__).with_name(database).glob("*.sql"))]
    return [[part for part in text.split(";\n") if part.strip()] for text in texts]
