"""A read-only store can be read, and a write reports that it is read-only."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.cli import main
from weft.errors import StoreError

NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """The user root may write everywhere, so another user does what is inside."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def path() -> Iterator[Path]:
    """A store with two messages in a folder, neither of which can be written."""
    folder = Path(tempfile.mkdtemp(prefix="weft-test-"))
    path = folder / "a store.db"
    with weft.open(path) as thread:
        thread.user("the parser is slow")
        thread.assistant("it is")
    path.chmod(0o444)
    folder.chmod(0o555)
    yield path
    folder.chmod(0o755)
    shutil.rmtree(folder)


def test_a_read_only_store_can_be_read(path: Path, capfd: Any) -> None:
    commands = {
        ("log",): "the parser is slow",
        ("threads",): "default",
        ("search", "parser"): "the parser is slow",
        ("compile",): "the parser is slow",
        ("export", "--format", "openai-chat", "--model", "m"): "the parser is slow",
        ("stats",): "2",
        ("show", "HEAD"): "it is",
    }
    with unprivileged():
        for words, text in commands.items():
            code = main([*words, "--store", str(path)])
            out, err = capfd.readouterr()
            assert (code, err) == (0, ""), words
            assert text in out
        for words in (["commit", "more"], ["edit", "HEAD", "other"], ["tag", "v1"]):
            code = main([*words, "--store", str(path)])
            out, err = capfd.readouterr()
            assert (code, out) == (1, ""), words
            assert err == f"weft: the store {str(path)!r} is read-only\n"
        with weft.open(path) as thread:
            assert len(thread.compile()) == 2
            with pytest.raises(StoreError, match="is read-only"):
                thread.user("more")
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_read_only_store_is_not_read_without_its_wal(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o644)
    thread = weft.open(path)
    thread.user("only in the log")
    log = path.with_name(f"{path.name}-wal").read_bytes()
    thread.close()
    path.with_name(f"{path.name}-wal").write_bytes(log)
    path.chmod(0o444)
    path.parent.chmod(0o555)
    with unprivileged(), pytest.raises(StoreError, match=r"copy .* and .*-wal.* to a folder"):
        weft.open(path)


def test_an_error_names_a_read_only_folder(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o666)
    path.parent.chmod(0o555)
    with unprivileged(), pytest.raises(StoreError, match=r"folder .* cannot be written"):
        weft.open(path)
