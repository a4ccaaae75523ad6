"""A disk that is full, or a file that may not grow: what is stored is reported as stored."""

import json
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weft

LONG = " ".join(f"word{number:x}" for number in range(6_000))
PROGRAM = "import sys; from weft.cli import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def no_growth(path: Path) -> Iterator[None]:
    """Files cannot become longer than this one is; SQLite then fails as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_close_succeeds_if_the_text_index_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    thread = weft.open(path)
    thread.user(LONG)
    with no_growth(path.with_name("store.db-wal")):
        thread.close()
    with weft.open(path) as thread:
        assert thread.show("HEAD").text == LONG
        assert len(thread.search("word1fe")) == 1


@pytest.mark.parametrize("command", ["commit", "import"])
def test_a_command_fails_only_if_nothing_was_stored(tmp_path: Path, command: str) -> None:
    message = json.dumps([{"role": "user", "content": LONG}]) if command == "import" else LONG
    words = ["import", "-", "--thread", "default"] if command == "import" else ["commit"]
    outcomes: set[bool] = set()
    for kilobytes in (48, 80, 110, 140, 180, 240, 600):
        path = tmp_path / f"{kilobytes}.db"
        with weft.open(path) as thread:
            thread.user("first")

        def refuse_growth(size: int = kilobytes * 1024) -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *words, "--store", str(path)],
            input=message.encode(),
            capture_output=True,
            preexec_fn=refuse_growth,
            check=False,
        )
        with weft.open(path) as thread:
            is_stored = bool(thread.search("word1fe"))
        assert done.returncode == (0 if is_stored else 1), (kilobytes, done.stderr)
        assert bool(done.stdout) == is_stored
        outcomes.add(is_stored)
    assert outcomes == {False, True}
