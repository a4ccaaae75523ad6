"""What several folders of tests share."""

from collections.abc import Iterator
from typing import Any

import pytest
from browser import chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A headless Chromium, one for the whole run; skips with the reason where there is none."""
    try:
        with chromium() as started:
            yield started
    except LookupError as reason:
        pytest.skip(str(reason))
