"""The schema's history: numbered SQL files for each database, never changed once released.

A file's number is the schema version it leads to (SQLite's `user_version`, PostgreSQL's table
`weft_schema`). A store written by a newer Weft is refused rather than guessed at.
"""

from importlib import resources


def scripts(database: str) -> list[list[str]]:
    """The statements of every version for `sqlite` or `postgres`, oldest first."""
    folder = resources.files(__name__).joinpath(database)
    names = sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql"))
    texts = [folder.joinpath(name).read_text() for name in names]
    return [[part for part in text.split(";\n") if part.strip()] for text in texts]
