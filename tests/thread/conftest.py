"""A thread in memory and a thread in a file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import weft
from weft.thread import Thread


@pytest.fixture(params=["memory", "sqlite"])
def t(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Thread]:
    target = None if request.param == "memory" else tmp_path / "chat.db"
    with weft.open(target) as thread:
        yield thread
