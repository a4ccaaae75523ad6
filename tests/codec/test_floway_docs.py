"""Where Weft and Floway differ over Floway's vectors, `docs/protocols` says why, class by class."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

PROJECT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def floway() -> ModuleType:
    """The comparison, from its file: `bench` is no package."""
    spec = spec_from_file_location("floway", PROJECT / "bench" / "floway.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", ["request", "events"])
def test_every_class_of_difference_is_on_its_page(floway, kind):
    if not floway.FOLDER.exists():
        pytest.skip("Floway's vectors are not beside the project")
    missing = floway.undocumented(floway.findings(gap=True))
    assert {(row.page, row.difference) for row in missing if row.kind == kind} == set()


def test_a_class_that_no_page_lists_is_missed(floway):
    row = floway.Finding(
        "request", "anthropic", "openai-chat", "1", "messages[].poem: another value"
    )
    assert floway.undocumented([row, row._replace(difference="")]) == [row]
