"""The schema's history: numbered SQL files, applied in order, never changed once released.

A file's number is the schema version it leads to (SQLite's `user_version`). A store written by a
newer Weft is refused rather than guessed at.
"""

from importlib import resources


def scripts() -> list[str]:
    """The SQL of every version, oldest first."""
    files = resources.files(__name__)
    names = sorted(file.name for file in files.iterdir() if file.name.endswith(".sql"))
    return [files.joinpath(name).read_text() for name in names]
