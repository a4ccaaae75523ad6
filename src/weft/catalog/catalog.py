"""The catalogue's values and how a name finds its row."""

import os
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Literal, cast

from msgspec import Struct, ValidationError, convert, field

from weft.errors import ConfigError

SHIPPED = os.path.join(os.path.dirname(__file__), "catalog.toml")
DEFAULT_OUTPUT = 8192
DEFAULT_WINDOW = 128_000
MOST_FOUND = 1000


class Price(Struct, frozen=True, kw_only=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cached: float | None = None
    written: float | None = None


def cost(price: Price, *, input: int, output: int, cached: int = 0, written: int = 0) -> float:
    """What an answer cost, in dollars.

    `input` counts all input, as `Usage` does: what was read from the cache or written to it is
    taken out of it, so that no token is paid twice. Where the row has no price of its own for
    those, they cost what any input costs.
    """
    fresh = max(0, input - cached - written)
    rate_cached = price.input if price.cached is None else price.cached
    rate_written = price.input if price.written is None else price.written
    millions = fresh * price.input + cached * rate_cached + written * rate_written
    return (millions + output * price.output) / 1_000_000


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known of one model behind one upstream.

    `inline_system` says where a system message may stand after the first: `anywhere` the vendor's
    placement law allows, only `after_user`, or `never`. `prefill` is whether the list may end with
    the assistant. `output` is the most tokens it writes in one answer. `signed_calls` is whether a
    call must carry the signature of its thinking, `media_results` whether a tool's result may hold
    media, `custom_tools` whether it takes tools of free text where its wire has them, `temperature`
    whether it lets a caller choose one, `one_sampler` whether it then refuses a `top_p` beside it,
    `stop` whether it can be told where to stop, `json_beside_tools` whether it answers in JSON
    where tools are offered, `json_named` whether it does so only where somebody speaks of JSON.

    How hard to think it can be told where `effort` says so, by OpenAI in these of its `efforts`,
    where not in all. `budget` is the least and the most tokens of thinking that it can be told,
    none where it does not think; `always_thinks`, that it cannot be told not to.
    """

    name: str = ""
    vendor: str = ""
    window: int = DEFAULT_WINDOW
    output: int = DEFAULT_OUTPUT
    inline_system: Literal["anywhere", "after_user", "never"] = "anywhere"
    prefill: bool = True
    tokenizer: Literal["o200k", "cl100k", "estimate"] = "estimate"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_completion_tokens"
    thinking: Literal["none", "budget", "adaptive", "effort"] = "none"
    signed_calls: bool = False
    media_results: bool = True
    custom_tools: bool = False
    temperature: bool = True
    one_sampler: bool = False
    stop: bool = True
    effort: bool = True
    efforts: tuple[str, ...] | None = None
    budget: tuple[int, int] | None = None
    always_thinks: bool = False
    json_beside_tools: bool = True
    json_named: bool = False
    price: Price | None = None


class Row(Struct, frozen=True, kw_only=True):
    """One `[[model]]` of the file: a pattern of names, an upstream's pattern, and what it says."""

    match: str
    upstream: str
    fields: dict[str, Any]


class Catalog(Struct, frozen=True):
    """All rows, in file order; `find` is the only question. `found` is what it answered so far."""

    rows: tuple[Row, ...]
    found: dict[tuple[str, str], Model] = field(default_factory=dict[tuple[str, str], Model])

    def find(self, name: str, upstream: str = "") -> Model:
        """The model of that name behind that upstream; rows that match more closely win."""
        model = self.found.get((name, upstream))
        if model is None:
            if len(self.found) >= MOST_FOUND:
                self.found.clear()  # callers may ask for any name
            model = self.found[name, upstream] = self._look_up(name, upstream)
        return model

    def _look_up(self, name: str, upstream: str) -> Model:
        fields: dict[str, Any] = {}
        matching = [
            row
            for row in self.rows
            if fnmatchcase(name, row.match) and fnmatchcase(upstream, row.upstream)
        ]
        for row in sorted(matching, key=lambda row: (row.upstream != "*", len(row.match))):
            fields.update(row.fields)
        return convert({**fields, "name": name}, Model)


def load_catalog(path: str | os.PathLike[str] | None = None) -> Catalog:
    """The shipped catalogue, with a user's own rows behind it, where they overrule."""
    if path is None:
        return _shipped()
    try:
        text = _read(path)
    except OSError as error:
        raise ConfigError(f"the catalogue {str(path)!r} cannot be read: {error}") from None
    return Catalog(_shipped().rows + read_rows(text, str(path)))


def read_rows(text: str, where: str) -> tuple[Row, ...]:
    """The rows of a catalogue file; raises `ConfigError` naming the row that is wrong."""
    import tomllib  # slow to import, and most processes read one small file

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    rows: list[Row] = []
    for number, raw in enumerate(cast(list[dict[str, Any]], table.get("model", []))):
        fields = dict(raw)
        match, upstream = fields.pop("match", None), fields.pop("upstream", "*")
        if not isinstance(match, str) or not isinstance(upstream, str):
            raise ConfigError(f"{where}: model[{number}] has no `match` pattern")
        try:
            convert(fields, Model)
        except ValidationError as error:
            raise ConfigError(f"{where}: model[{number}] ({match}): {error}") from None
        rows.append(Row(match=match, upstream=upstream, fields=fields))
    return tuple(rows)


@cache
def _shipped() -> Catalog:
    return Catalog(read_rows(_read(SHIPPED), "catalog.toml"))


def _read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()
