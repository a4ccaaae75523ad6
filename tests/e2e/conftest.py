"""Fixtures for real clients and browsers: a mock upstream, tabs, and axe."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corpus import ROOT
from pages import open_tab, wait_until
from serving import serving
from slow_upstream import slow_upstream

MOCK = ROOT.parent / "clients" / "mock_upstream.py"


class Mock:
    """An upstream that answers at `url` and logs what it is asked."""

    def __init__(self, url: str, log: Path) -> None:
        self.url, self._log = url, log

    def models(self) -> set[str]:
        """The models that were asked for; Gemini names them in the path."""
        rows = [json.loads(line) for line in self._log.read_text().splitlines()]
        paths = {row["path"].partition("/models/")[2].partition(":")[0] for row in rows}
        bodies = [row["body"] for row in rows if isinstance(row.get("body"), dict)]
        return (paths | {body["model"] for body in bodies if "model" in body}) - {""}

    def newest(self) -> dict[str, Any]:
        """The newest body."""
        rows = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [row["body"] for row in rows if isinstance(row.get("body"), dict)][-1]

    def asked(self, member: str) -> list[dict[str, Any]]:
        """What the newest request that has this member says in it."""
        bodies = [json.loads(line).get("body") for line in self._log.read_text().splitlines()]
        return [body for body in bodies if isinstance(body, dict) and member in body][-1][member]


@pytest.fixture
def mock(tmp_path: Path) -> Iterator[Mock]:
    if not MOCK.exists():
        pytest.skip("the mock upstream is not beside the project")
    log = tmp_path / "asked.jsonl"
    command = [sys.executable, str(MOCK), "--port", "0", "--log", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        port = server.stdout.readline().split()[-1]
        try:
            yield Mock(f"http://127.0.0.1:{port}", log)
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def upstream() -> Iterator[Any]:
    """An upstream that answers as slowly as a test wants."""
    with slow_upstream() as running:
        yield running


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the server behind the page."""
    return tmp_path_factory.mktemp("page")


@pytest.fixture(scope="module")
def url(folder: Path, upstream: Any) -> Iterator[str]:
    """The address of a gateway in front of that upstream."""
    store = str(folder / "weft.db")
    with serving(folder, "--store", store, f"--upstream=mock=anthropic:{upstream.url}") as address:
        yield address


@pytest.fixture
def new_tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """A function that opens a tab, as `open_tab` does; fails if a page had an error."""
    pages: list[Any] = []

    def open_another(*address: Any, **options: Any) -> Any:
        pages.append(open_tab(browser, *address, **options))
        return pages[-1]

    yield open_another
    errors = [error for page in pages for error in page.errors]
    for page in pages:
        page.context.close()
    assert errors == []


@pytest.fixture(scope="module")
def axe() -> Callable[[Any], object]:
    """A function that waits until axe finds nothing wrong in a page."""
    package = pytest.importorskip("axe_playwright_python.sync_playwright")
    runner = package.Axe()
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    options = {"runOnly": rules, "resultTypes": ["violations"]}  # details of the rest take longer

    def violations(page: Any) -> list[Any]:
        results = runner.run(page, options=options).response
        return [
            (rule["id"], node["html"][:200], node.get("failureSummary"))
            for rule in results["violations"]
            for node in rule["nodes"]
        ]

    return lambda page: wait_until(page, lambda: violations(page), [])
