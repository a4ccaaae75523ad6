"""What several folders of tests share: a browser, and a real server."""

from collections.abc import Iterator
from typing import Any

import pytest

from browser import chromium
from serving import serving


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, one for the whole run; skips with the reason where there is none."""
    try:
        with chromium() as started:
            yield started
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a server with nothing but the sample thread; one for each module of tests."""
    with serving(tmp_path_factory.mktemp("served")) as url:
        yield url
