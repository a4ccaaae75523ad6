"""The reference in `docs/reference` matches the code."""

import importlib.util
import re
from pathlib import Path

import pytest

import weft
from weft.client import UpstreamTable
from weft.codec import CODECS
from weft.gateway import CompactionSettings, ConfigFile, KeyTable, LimitSettings
from weft.model import LOSS_CODES

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
SOURCES = [path.read_text() for path in (ROOT / "src" / "weft").rglob("*.py")]


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


def rows(title):
    """The first two cells of each row of the table below a line."""
    text = (REFERENCE / "configuration.md").read_text().partition(title)[2]
    table = re.search(r"(?:^\|.*\n)+", text, re.M)[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return {row[0].strip("`"): row[1] for row in cells}


def encoded_fields(struct):
    return list(struct.__struct_encode_fields__)


TABLES = [
    ("## weft.toml", encoded_fields(ConfigFile)),
    ("### `[[key]]`", encoded_fields(KeyTable)),
    ("### `[[upstream]]`", encoded_fields(UpstreamTable)),
    ("### `[[model]]`", ["match", "upstream", "below", *encoded_fields(weft.Model)]),
    ("### `[compaction]`", encoded_fields(CompactionSettings)),
    ("### `[limits]`", encoded_fields(LimitSettings)),
]


@pytest.mark.parametrize(("title", "keys"), TABLES, ids=[title for title, _ in TABLES])
def test_every_config_key_is_listed_and_no_other(title, keys):
    assert list(rows(title)) == keys


def test_listed_defaults_match_the_code():
    default = LimitSettings()
    numbers = {key: value.strip("`") for key, value in rows("### `[limits]`").items()}
    assert "half of `requests`" in numbers.pop("requests_per_key")
    assert default.slots_per_key(2) == default.requests // 2
    listed = {key: float(number) for key, number in numbers.items()}
    assert listed == {key: getattr(default, key) for key in listed}


VARIABLE = re.compile(
    r"\b(WEFT_[A-Z_]+|(?:ANTHROPIC|OPENAI|GEMINI)_API_KEY|[A-Z_]+_BASE_URL|XDG_[A-Z_]+|CLAUDE_CONFIG_DIR|CODEX_HOME"
    r"|NO_COLOR|PAGER)\b"
)


def test_every_environment_variable_is_listed_and_no_other():
    used = {name for text in SOURCES for name in VARIABLE.findall(text)}
    assert set(rows("## Environment variables")) == used


def test_every_weft_header_is_listed_and_no_other():
    used = {name for text in SOURCES for name in re.findall(r"x-weft-[a-z]+", text)}
    listed = {*rows("Requests:"), *rows("Answers:")}
    listed -= {"x-session-id", "x-request-id", "x-upstream-request-id"}
    assert listed == used


def test_every_call_of_the_http_api_is_listed_and_no_other():
    used = {path for text in SOURCES for path in re.findall(r'"(/api/[a-z-]+)"', text)}
    text = (REFERENCE / "http.md").read_text()
    assert set(re.findall(r"`(?:GET|POST) (/api/[a-z-]+)`", text)) == used
    vendor_paths = {path for codec in CODECS.values() for path in codec.http.paths}
    assert [path for path in vendor_paths if f"`POST {path}`" not in text] == []


def test_the_api_page_has_every_public_name():
    text = (REFERENCE / "api.md").read_text()
    assert [name for name in weft.__all__ if f"`{name}" not in text] == []


def test_every_public_class_has_its_own_docstring():
    classes = [value for name in weft.__all__ if isinstance(value := getattr(weft, name), type)]
    assert [value.__name__ for value in classes if not vars(value).get("__doc__")] == []
