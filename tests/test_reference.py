"""The reference in `docs/reference` says what the code says."""

import importlib.util
from pathlib import Path

import pytest

from weft.model import LOSS_CODES

REFERENCE = Path(__file__).parent.parent / "docs" / "reference"


def load_maker():
    spec = importlib.util.spec_from_file_location("reference_make", REFERENCE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = load_maker()


@pytest.mark.parametrize("name", MAKER.PARTS)
def test_a_generated_page_is_up_to_date(name):
    page = REFERENCE / name
    assert page.read_text() == MAKER.pages()[page], "run: python docs/reference/make.py"


def test_every_loss_code_has_its_row():
    text = (REFERENCE / "losses.md").read_text()
    assert [code for code in LOSS_CODES if f"| `{code}` |" not in text] == []
