"""Runs commands in the process of the test."""

import io
from pathlib import Path
from typing import Any

import pytest

from weft.cli import main


@pytest.fixture
def run(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a command on a store of its own; the result is exit code, output and errors."""
    monkeypatch.setenv("WEFT_STORE", str(tmp_path / "store.db"))
    monkeypatch.setattr("sys.stdin", io.StringIO())

    def command(*words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        read = capfd.readouterr()
        return code, read.out, read.err

    return command
