"""The models whose prices and limits are known: `models.json`, which `tools/models.py` writes.

A model is found by its exact name at a vendor. A vendor's names may take version suffixes, such as
a date; the data says which. So `claude-opus-4-6-20260205` is known, and `claude-opus-4-60` is not.
The spelling tells the vendor, because a cloud may charge more than the maker:

    claude-opus-4-6, claude-opus-4-6[1m]        the maker
    models/gemini-2.5-pro                       Google
    claude-opus-4-6@20260205                    Vertex
    us.anthropic.claude-opus-4-6-v1:0, an ARN   Bedrock
    anthropic/claude-opus-4.6                   OpenRouter
    bedrock/…, vertex_ai/…, azure/…, xai/…      the vendor before the slash, as LiteLLM writes it
"""

import os
from collections.abc import Iterator
from datetime import date
from functools import cache

from msgspec import Raw, Struct, field
from msgspec.json import decode

from weft.lazy import lazy_pattern

from .names import LARGE_WINDOW_SUFFIX, maker_spelling
from .prices import Price

TABLE = os.path.join(os.path.dirname(__file__), "models.json")

LARGE_WINDOW = 1_000_000

ALIASES = {
    "@cf": "cloudflare",
    "accounts": "fireworks",
    "azure_ai": "azure",
    "bedrock": "aws",
    "bedrock_converse": "aws",
    "bedrock_mantle": "aws",
    "converse": "aws",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "github_copilot": "github-copilot",
    "copilot": "github-copilot",
    "grok": "x-ai",
    "mistralai": "mistral",
    "moonshot": "moonshotai",
    "together_ai": "together",
    "vertex": "google",
    "vertex_ai": "google",
    "xai": "x-ai",
    "z-ai": "zai",
    "z.ai": "zai",
    "zhipu": "zhipuai",
}
"""Other names of vendors, in spellings of models and as names of upstreams."""

_VERSION = lazy_pattern(
    r"(?P<base>.+?)"
    r"(?:-(?P<d>20\d{6})|-(?P<D>20\d\d-\d\d-\d\d)|@(?P<at>20\d{6}|default|latest)"
    r"|(?P<l>-latest)|(?P<n>-\d{3})|-preview(?P<p>(?:-\d\d-(?:\d\d|20\d\d))?))?"
    r"(?:(?P<v>-v1(?::\d)?)|(?P<V>-v[2-9](?::\d)?))?"
)
_GROUPS = {"d": "d", "D": "D", "at": "@", "l": "l", "n": "n", "p": "p", "v": "v", "V": "V"}
_COMPACT_DATE = lazy_pattern(r"-(20\d\d)(\d\d)(\d\d)$")
_BEDROCK = lazy_pattern(r"(?:[a-z]+(?:-gov)?\.)?[a-z]+\.[a-z].*")


def split_version(name: str) -> tuple[str, str] | None:
    """A name without its version suffix, and the kinds of suffix; None if it has no valid one.

    The letters of the kinds are those of `tools/models.py`.
    """
    version = _VERSION.fullmatch(name)
    if version is None:
        return None
    found = {group: text for group in _GROUPS if (text := version[group]) is not None}
    days = [found.get("d"), found.get("D"), (found.get("at") or "").lstrip("@") or None]
    if not found or not all(_is_day(day) for day in days if day and day[0] == "2"):
        return None
    return version["base"], "".join(_GROUPS[group] for group in found)


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


class _Row(Struct, frozen=True):
    id: str
    price: int
    names: dict[str, str]
    window: int | None = None
    output: int | None = None


class _Table(Struct, frozen=True):
    prices_from: str
    limits_from: str
    date: str
    makers: list[str]
    fallbacks: dict[str, list[str]]
    prices: list[Raw]
    vendors: dict[str, Raw]


class KnownModel(Struct, frozen=True, kw_only=True):
    """A model at a vendor: its price, window and longest answer (None: unknown)."""

    id: str
    vendor: str
    price: Price
    window: int | None = None
    output: int | None = None
    names: tuple[str, ...] = ()


class _Vendor(Struct, frozen=True):
    """The models of one vendor by their exact names."""

    id: str
    rows: list[_Row]
    by_name: dict[str, _Row] = field(default_factory=dict[str, _Row])

    def find(self, name: str) -> _Row | None:
        row = self.by_name.get(name)
        if row is not None:
            return row
        version = split_version(name)
        if version is not None:
            base, kinds = version
            row = self.by_name.get(base)
            if row is not None and set(kinds) <= set(row.names[base]):
                return row
        dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)  # aggregators write dates without hyphens
        return self.by_name.get(dashed)


class Sources(Struct, frozen=True):
    """Where prices and limits come from, and the day they were read."""

    prices: str
    limits: str
    date: str


def sources() -> Sources:
    """Where the prices and limits of this version come from."""
    table = _table()
    return Sources(table.prices_from, table.limits_from, table.date)


def known_models() -> Iterator[KnownModel]:
    """All known models, vendor by vendor."""
    for vendor in _table().vendors:
        for row in _vendor(vendor).rows:
            yield _known(vendor, row)


def find_known(name: str, upstream: str = "") -> KnownModel | None:
    """The model with exactly that name, in any of its spellings; None if it is not known.

    If the upstream has the name of a vendor, that vendor's price is preferred.
    """
    plain = name.strip().removesuffix(LARGE_WINDOW_SUFFIX)
    for vendor, spelling in _spellings(plain, upstream):
        row = _vendor(vendor).find(spelling)
        if row is not None:
            return _known(vendor, row)
    return None


def _spellings(name: str, upstream: str) -> Iterator[tuple[str, str]]:
    """The vendors that may have a model of that name, and the name there."""
    table = _table()
    lower = name.lower()
    behind = ALIASES.get(upstream.lower(), upstream.lower())
    if behind in table.vendors:
        yield behind, lower
        yield behind, lower.rpartition("/")[2]
    if "/" in lower:
        first, _, rest = lower.partition("/")
        last = lower.rpartition("/")[2]
        if lower.startswith("arn:"):
            yield "aws", last
        elif first in ("models", "publishers", "projects"):
            yield "google", last
        else:
            if name == lower:  # other servers of open models write Qwen/Qwen3-32B
                yield "openrouter", lower
            vendor = ALIASES.get(first, first)
            if vendor in table.vendors:
                for spelling in (rest, last, lower):
                    yield vendor, spelling
                for other in table.fallbacks.get(vendor, ()):
                    yield other, last
        return
    if "@" in lower:
        yield "google", lower
    if _BEDROCK.fullmatch(lower):
        yield "aws", lower
    if lower.startswith("ft:"):
        lower = ":".join(lower.split(":")[:2])
    for maker in table.makers:
        yield maker, lower
    yield "anthropic", maker_spelling(lower)  # claude-4.5-sonnet


@cache
def _table() -> _Table:
    with open(TABLE, "rb") as file:
        return decode(file.read(), type=_Table)


@cache
def _vendor(vendor: str) -> _Vendor:
    rows = decode(_table().vendors[vendor], type=list[_Row])
    return _Vendor(vendor, rows, {name: row for row in rows for name in row.names})


@cache
def _price(number: int) -> Price:
    return decode(_table().prices[number], type=Price)


def _known(vendor: str, row: _Row) -> KnownModel:
    return KnownModel(
        id=row.id,
        vendor=vendor,
        price=_price(row.price),
        window=row.window,
        output=row.output,
        names=tuple(row.names),
    )
