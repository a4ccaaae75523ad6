"""`docs/protocols` explains every class of differences between Weft and Floway."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def floway() -> ModuleType:
    """The module `bench/floway.py`; `bench` is not a package."""
    spec = spec_from_file_location("floway", PROJECT / "bench" / "floway.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["request", "events"])
def test_every_class_of_difference_is_documented(floway, kind):
    if not floway.FOLDER.exists():
        pytest.skip("Floway's vectors are not available")
    missing = floway.undocumented(floway.findings(gap=True))
    assert {(row.page, row.difference) for row in missing if row.kind == kind} == set()


def test_an_undocumented_class_is_reported(floway):
    row = floway.Finding(
        "request", "anthropic", "openai-chat", "1", "messages[].poem: different value"
    )
    assert floway.undocumented([row, row._replace(difference="")]) == [row]
