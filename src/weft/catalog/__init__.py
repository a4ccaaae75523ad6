"""Models as data: context windows, output limits, prices and capabilities.

Capabilities come from `catalog.toml`, by patterns of names; the row with the longest matching
pattern wins. Prices, windows and output limits come from `models.json`, by exact names (`known`),
because a relative's price would be wrong. Missing fields have defaults, so an unknown model works
too, without a price. A name may have any of the usual spellings (`names`). User rows (`[[model]]`
in `weft.toml`, `add_models` in Python) win over both.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Annotated, Any, Literal, cast

from msgspec import Meta, Struct, ValidationError, convert, field

from weft.errors import ConfigError
from weft.lazy import lazy_pattern

from .known import (
    LARGE_WINDOW,
    KnownModel,
    Sources,
    find_known,
    known_models,
    sources,
    split_version,
)
from .names import LARGE_WINDOW_SUFFIX, Version, plain_name, version_of
from .prices import DatedPrice, Price, PriceTier, PriceVariant, cost


def read_version(value: Any, where: str) -> Version | None:
    """The version in a row's `below`; raises `ConfigError` if it is invalid."""
    if value is None:
        return None
    version = _BELOW_VERSION.fullmatch(str(value))
    if version is None:
        raise ConfigError(f'{where}: `below` must be a version such as "4.8"')
    return int(version[1]), int(version[2] or 0)


_BELOW_VERSION = lazy_pattern(r"(\d{1,2})(?:\.(\d{1,2}))?")

SHIPPED = os.path.join(os.path.dirname(__file__), "catalog.toml")
DEFAULT_OUTPUT = 8192
DEFAULT_WINDOW = 128_000
CACHE_SIZE = 1000  # names

Tokens = Annotated[int, Meta(gt=0)]


class Model(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The properties of one model behind one upstream.

    - `vendor`: the company that serves it under its own name, if that is known.
    - `maker`: the company that trained it, if it is not the vendor. Models of different makers
      cannot read each other's thinking.
    - `output`: the maximum tokens of one answer.
    - `inline_system`: whether system messages are allowed after the leading ones. With `never`,
      they become `user` messages. Only the Messages API depends on this field, and it allows them
      only after a user message. So `after_user` and `anywhere` have the same effect.
    - `prefill`: whether the list may end with an assistant message.
    - `signed_calls`: whether a tool call must be sent back with its thought signature (Gemini).
    - `media_results`: whether a tool result may contain media.
    - `custom_tools`: whether it accepts custom tools (tools whose input is free text), if its
      protocol has them.
    - `temperature`, `stop`: whether it accepts the parameter.
    - `one_sampler`: whether it rejects `top_p` together with `temperature`.
    - `json_beside_tools`: whether it can combine JSON output with tools in one request.
    - `json_named`: whether JSON output requires the word "JSON" in the conversation.
    - `images`, `image_scale`: the formula for the tokens of an image, and its numbers. `area`:
      pixels / 750, at most 1,600. `large`: the same, at most 4,784. `tiles`: a base, and a number
      for each tile of 512 pixels. `patches`: a factor for each patch of 32 pixels, up to a limit.
      `grid`: 258 for each tile of Gemini. `fixed`: the same number for each image.
    - `tool_prompt`: the tokens of the prompt that the vendor adds to a request with tools;
      `chat_tool_prompt`: the same in Chat Completions, if it differs.

    Servers with OpenAI's protocols differ in three fields. If no row sets one, the host decides
    (`Provider.with_host_defaults`).

    - `max_tokens_field`: the name of the parameter that limits the output.
    - `developer`: whether the server supports the role `developer`.
    - `system_parts`: whether a system message of Chat may be a list of parts.

    Thinking:

    - `thinking`: how it thinks: `none` (not at all, or unknown), `budget` (the request sets a
      number of tokens), `adaptive` (the model decides) or `effort` (the request sets a level).
    - `effort`: whether it accepts an effort level.
    - `efforts`: the levels of OpenAI that it accepts, if not all.
    - `budget`: the minimum and maximum thinking tokens: `(0, 0)` if it does not think, `None` if
      the range is unknown.
    - `always_thinks`: whether thinking cannot be turned off.
    """

    name: str = ""
    vendor: str = ""
    maker: str = ""
    window: Tokens = DEFAULT_WINDOW
    output: Tokens = DEFAULT_OUTPUT
    inline_system: Literal["anywhere", "after_user", "never"] = "anywhere"
    prefill: bool = True
    tokenizer: Literal["o200k", "cl100k", "estimate"] = "estimate"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] | None = None
    developer: bool | None = None
    system_parts: bool | None = None
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
    images: Literal["area", "large", "tiles", "patches", "grid", "fixed"] = "area"
    image_scale: tuple[float, ...] = ()
    tool_prompt: Annotated[int, Meta(ge=0)] = 0
    chat_tool_prompt: Annotated[int, Meta(ge=0)] | None = None


class CatalogRow(Struct, frozen=True, kw_only=True):
    """One `[[model]]` table: which models it applies to, and their fields.

    `match` is a pattern for model names, `upstream` for upstream names. With `below`, the row only
    applies to models whose name has a lower version. `own` rows are the user's; they take
    precedence over the shipped ones.
    """

    match: str
    upstream: str
    fields: dict[str, Any]
    below: Version | None = None
    own: bool = False

    def applies(self, names: Sequence[str], upstream: str) -> bool:
        """Whether the row applies to a model with these spellings behind that upstream."""
        if not fnmatchcase(upstream, self.upstream):
            return False
        if not any(fnmatchcase(name, self.match) for name in names):
            return False
        if self.below is None:
            return True
        version = version_of(names[-1])
        return version is not None and version < self.below

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """If several rows set a field, the value of the row with the highest rank is used."""
        return self.own, self.upstream != "*", len(self.match)


class Catalog(Struct, frozen=True):
    """All rows, in file order; `models` and `vendors` cache the results of lookups."""

    rows: tuple[CatalogRow, ...]
    models: dict[tuple[str, str], Model] = field(default_factory=dict[tuple[str, str], Model])
    vendors: dict[str, str] = field(default_factory=dict[str, str])

    def find(self, name: str, upstream: str = "") -> Model:
        """The model of that name, in any spelling, behind that upstream.

        More specific rows take precedence, and the user's rows over the shipped ones.
        """
        model = self.models.get((name, upstream))
        if model is None:
            if len(self.models) >= CACHE_SIZE:
                self.models.clear()  # names come from callers, so their number is unbounded
            model = self.models[name, upstream] = self._look_up(name, upstream)
        return model

    def vendor_of(self, name: str) -> str:
        """The vendor that serves a model under exactly this name, or `""`.

        Anthropic does not serve its models under an aggregator's spelling such as
        `anthropic/claude-opus-4.6`, so no request and no key may go to Anthropic for that name.
        """
        vendor = self.vendors.get(name)
        if vendor is None:
            if len(self.vendors) >= CACHE_SIZE:
                self.vendors.clear()
            fields = self._fields((name,), "") | self._fields((name,), "", own=True)
            vendor = self.vendors[name] = str(fields.get("vendor", ""))
        return vendor

    def with_models(self, *rows: Mapping[str, Any]) -> "Catalog":
        """This catalogue with more rows; raises `ConfigError` with the invalid key."""
        return Catalog(self.rows + read_tables(rows, "models"))

    def _look_up(self, name: str, upstream: str) -> Model:
        names = (name, plain_name(name))
        shipped, own = self._fields(names, upstream), self._fields(names, upstream, own=True)
        return convert({**shipped, **_known_fields(name, upstream), **own, "name": name}, Model)

    def _fields(self, names: Sequence[str], upstream: str, *, own: bool = False) -> dict[str, Any]:
        """The fields of the shipped rows, or of the user's (`own`)."""
        fields: dict[str, Any] = {}
        for row in sorted(self.rows, key=lambda row: row.rank):
            if row.own is own and row.applies(names, upstream):
                fields.update(row.fields)
        return fields


def _known_fields(name: str, upstream: str) -> dict[str, Any]:
    """The price and limits of a model that the data has under exactly that name."""
    known = find_known(name, upstream)
    if known is None:
        return {}
    fields: dict[str, Any] = {"price": known.price}
    window = known.window or 0
    if name.endswith(LARGE_WINDOW_SUFFIX):
        window = max(window, LARGE_WINDOW)
    if window:
        fields["window"] = window
    if known.output is not None:
        fields["output"] = known.output
    return fields


_added: tuple[CatalogRow, ...] = ()
"""Rows that the program added for this process."""


def add_models(*rows: Mapping[str, Any]) -> None:
    """Add rows to the default catalogue of this process.

    A row has the keys of a `[[model]]` table: `match`, optionally `upstream` and `below`, and any
    field of `Model`. If a row is invalid, raises `ConfigError` with the key and adds none.
    """
    global _added
    _added += read_tables(rows, "add_models")
    _default.cache_clear()


def load_catalog(
    path: str | os.PathLike[str] | None = None, models: Iterable[Mapping[str, Any]] = ()
) -> Catalog:
    """The default catalogue with the user's rows added.

    If a shipped row and a user's row set the same field, the user's value is used.

    `path` is a TOML file with `[[model]]` tables, such as `weft.toml`; `models` are the same
    tables as dicts. Raises `ConfigError` with the file and the invalid key.
    """
    rows: tuple[CatalogRow, ...] = ()
    if path is not None:
        if not isinstance(path, str | os.PathLike):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"path must be a file's path, not {type(path).__name__}")
        try:
            text = _read(path)
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the catalogue {str(path)!r} cannot be read: {error}") from None
        rows = read_rows(text, str(path))
    rows += read_tables(models, "models")
    return Catalog(_default().rows + rows) if rows else _default()


def read_rows(text: str, where: str, *, own: bool = True) -> tuple[CatalogRow, ...]:
    """The `[[model]]` tables of a TOML text; raises `ConfigError` with the invalid key."""
    import tomllib  # slow to import, and most processes read one small file

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{where} is not TOML: {error}") from None
    return read_tables(table.get("model", []), where, own=own)


def read_tables(tables: Any, where: str, *, own: bool = True) -> tuple[CatalogRow, ...]:
    """Rows from `[[model]]` tables; raises `ConfigError` with the invalid key."""
    prefix = f"{where}: " if where else ""
    if isinstance(tables, str | Mapping) or not isinstance(tables, Iterable):
        raise ConfigError(f"{prefix}model must be a list of tables: [[model]]")
    rows = enumerate(cast("Iterable[Any]", tables))
    return tuple(_read_table(raw, f"{prefix}model[{number}]", own) for number, raw in rows)


def _read_table(raw: Any, where: str, own: bool) -> CatalogRow:
    if not isinstance(raw, Mapping):
        raise ConfigError(f"{where} must be a table with `match`")
    fields = dict(cast("Mapping[str, Any]", raw))
    match, upstream = fields.pop("match", None), fields.pop("upstream", "*")
    if not isinstance(match, str) or not match:
        raise ConfigError(f"{where} has no `match` pattern")
    if not isinstance(upstream, str):
        raise ConfigError(f"{where} ({match}): `upstream` must be a pattern of names")
    below = read_version(fields.pop("below", None), f"{where} ({match})")
    try:
        convert(fields, Model)
    except ValidationError as error:
        raise ConfigError(f"{where} ({match}): {error}") from None
    return CatalogRow(match=match, upstream=upstream, fields=fields, below=below, own=own)


@cache
def _default() -> Catalog:
    return Catalog(_shipped() + _added)


@cache
def _shipped() -> tuple[CatalogRow, ...]:
    return read_rows(_read(SHIPPED), "catalog.toml", own=False)


def _read(path: str | os.PathLike[str]) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


__all__ = [
    "Catalog",
    "CatalogRow",
    "DatedPrice",
    "KnownModel",
    "Model",
    "Price",
    "PriceTier",
    "PriceVariant",
    "Sources",
    "add_models",
    "cost",
    "find_known",
    "known_models",
    "load_catalog",
    "plain_name",
    "read_rows",
    "read_tables",
    "sources",
    "split_version",
    "version_of",
]
