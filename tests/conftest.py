"""What several folders of tests share: a browser, a real server, and the three stores."""

import compileall
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from browser import chromium
from postgres import fresh_address, postgres_server
from serving import serving
from weft.store import MemoryStore, SqliteStore, Store, open_store

SOURCES = Path(__file__).parent.parent / "src"

settings.register_profile(
    "torture",
    max_examples=400,
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
# `make test` tries the same examples each time, so that it fails only after a change.
# `make torture` tries new ones. Neither measures time: a busy machine is no fault of the code.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
if not os.environ.get("WEFT_TORTURE"):
    settings.load_profile("repeatable")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile the sources once.

    Tests start hundreds of processes. Where Python may not write byte code (images of containers
    often forbid it) each of them would compile all modules again, which takes longer than the rest
    of its start.
    """
    if not hasattr(session.config, "workerinput"):
        compileall.compile_dir(SOURCES, quiet=2)


def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores: many tests wait for servers and browsers."""
    return (os.cpu_count() or 1) + 1


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium; skips with the reason where there is none.

    One for each module and not for the whole run: its driver keeps an event loop running in this
    thread, in which no test could start another.
    """
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


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real PostgreSQL, one for the whole run; skips with the reason where none can start."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    try:
        with postgres_server(Path(gettempdir()) / f"weft-postgres-{run}") as url:
            yield url
    except LookupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def postgres(postgres_url: str) -> str:
    """The address of an empty store of its own in that server."""
    return fresh_address(postgres_url)


STORES: dict[str, Callable[[pytest.FixtureRequest], Store]] = {
    "memory": lambda _: MemoryStore(),
    "sqlite": lambda request: SqliteStore(request.getfixturevalue("tmp_path") / "store.db"),
    "postgres": lambda request: open_store(request.getfixturevalue("postgres")),
}


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """An empty store of each kind in turn."""
    opened = STORES[request.param](request)
    yield opened
    opened.close()
