"""`CompiledContext`: the messages of a thread at one commit, and their conversion to other formats.

It is frozen. It shares its rows with the thread and builds its own tuples on first use, so the cost
of a compile depends on the number of new commits, not on the length of the thread. Converting reads
no store. Only `generation_configs` and `calibrated` read it, on access, because their data is
stored beside the messages.

`to_text` and `to_dicts` are formats for people. The codecs write the formats of the vendors.
`write_params` writes the arguments of a vendor's `create(**...)`. They contain no `None` and
nothing that the vendor refuses; `losses` lists what was left out. Without a model's name, they
have no `model`, so that the caller can name it in the call.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, cast

from msgspec import Struct, structs

from weft import exact_json
from weft.catalog import Model, load_catalog
from weft.checked import checked_class
from weft.codec import CODECS, SystemPolicy, Target, as_dict, write_request
from weft.errors import ConfigError, Refused, ThreadError
from weft.function_tools import FunctionTool, read_tool
from weft.history import Count, Priority, Row, Setup, View, visible_rows
from weft.ids import Id
from weft.lazy import lazy_pattern
from weft.model import (
    Block,
    JsonObject,
    Loss,
    Message,
    Opaque,
    Params,
    Position,
    Redacted,
    Request,
    Text,
    Thinking,
    Tool,
    by_importance,
    display_text,
    make_loss,
    speaker,
    texts,
    thinking_text,
)

from .usage import Calibration

VENDOR_SUMMARIES = frozenset({"compaction", "compaction_summary"})
"""Types of vendor blocks that replace compacted messages."""

PORTABLE_TOKENS = 4096
"""The most tokens of a text that replaces a sealed compaction, which only its vendor can read."""

ANTHROPIC = "anthropic"
GEMINI = "gemini"
MAX_UNSTREAMED_TOKENS = 8192
"""A token limit that every model accepts without streaming.

https://platform.claude.com/docs/en/cli-sdks-libraries/sdks/python#long-requests
"""

NO_MARKS: Mapping[Position, Any] = {}
NO_OTHER_MEMBERS: Mapping[str, Any] = {}

COMMON_TOOL_MEMBERS = frozenset({"type", "name", "description", "parameters", "input_schema"})
"""Members of a function definition that all vendors have, under any of their names."""

NATIVE_TOOL_MEMBERS = frozenset({"name", "description", "parameters", "strict"})
"""Members of a definition in the form of `weft.Tool`."""

ToolLike = Tool | Mapping[str, Any] | Any
"""A `Tool`, a vendor's dict, a function, or an object with `name`, `description`, `parameters`."""


class Recipe(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a request was built from a thread: the commit, the protocol, the model and the policies.

    `tools` is set only if the caller passed other tools than the thread's.
    """

    head: str | None
    protocol: str
    model: str | None = None
    system: SystemPolicy = "auto"
    max_tokens: int | None = None
    tools: tuple[Tool, ...] | None = None
    last: int | None = None
    reasoning: bool = False


class VendorParams(dict[str, Any]):
    """The members of a request, to unpack with `**`, and its `losses`.

    Pass it back with the answer (`t.assistant(answer, sent=params)`); then the thread can show the
    sent request later. `written` are the members that Weft wrote, to tell them from members that
    the caller adds.
    """

    losses: tuple[Loss, ...] = ()
    recipe: Recipe | None = None
    written: frozenset[str] = frozenset()


def write_params(
    recipe: Recipe,
    messages: Sequence[Message],
    setup: Setup,
    earlier_losses: Sequence[Loss] = (),
    marks: Mapping[Position, Any] = NO_MARKS,
    rest: Mapping[str, Any] = NO_OTHER_MEMBERS,
) -> VendorParams:
    """Write the request for these messages.

    `earlier_losses` are included in the result. `marks` are cache breakpoints by position. `rest`
    (`Request.rest`) are values without a field in the model, which are written or reported.
    """
    if recipe.protocol not in CODECS:
        raise ThreadError(f"unknown protocol: {recipe.protocol!r}")
    params, model = setup.params, recipe.model
    catalog_model = load_catalog().find(model or "")
    if recipe.max_tokens is not None:
        params = structs.replace(params, max_tokens=recipe.max_tokens)
    elif recipe.protocol == ANTHROPIC and params.max_tokens is None and not params.stream:
        params = structs.replace(params, max_tokens=_unstreamed_limit(catalog_model, params))
        # The API requires a limit, and without streaming its SDK refuses large ones.
        earlier_losses = (
            *earlier_losses,
            make_loss("default_added", "max_tokens", params.max_tokens),
        )
    request = Request(
        model=model or "",
        messages=tuple(messages),
        tools=setup.tools if recipe.tools is None else recipe.tools,
        params=params,
        marks=marks,
        rest=rest,
    )
    target = Target(catalog_model, recipe.system)
    request_body = write_request(request, CODECS[recipe.protocol], target)
    written, rounded = as_dict(request_body.body)
    body = {key: value for key, value in written.items() if value is not None}
    if recipe.protocol == GEMINI:
        body = _gemini_arguments(body, model)
    if model is None:
        body.pop("model", None)
    vendor_params = VendorParams(body)
    vendor_params.losses = tuple(by_importance([*earlier_losses, *request_body.losses, *rounded]))
    vendor_params.recipe = recipe
    vendor_params.written = frozenset(vendor_params)
    return vendor_params


def _unstreamed_limit(model: Model, params: Params) -> int:
    """The token limit of an answer without streaming, including its thinking budget."""
    budget = params.reasoning.budget if params.reasoning is not None else None
    return min(model.output, MAX_UNSTREAMED_TOKENS + (budget or 0))


def _gemini_arguments(body: JsonObject, model: str | None) -> JsonObject:
    """Google's SDK takes `model`, `contents`, and all else as one `config`.

    https://googleapis.github.io/python-genai/genai.html#genai.models.Models.generate_content
    """
    options = {key: value for key, value in body.items() if key not in ("contents", "model")}
    config = {**options.pop("generationConfig", {}), **options}
    model_argument = {"model": model} if model is not None else {}
    return {
        **model_argument,
        "contents": body["contents"],
        **({"config": config} if config else {}),
    }


def read_tools(tools: Iterable[ToolLike]) -> tuple[Tool, ...]:
    """Convert tools of any accepted form; raises `ThreadError` with the place of other values.

    A definition in a vendor's form is decoded by that vendor's codec, which keeps the original.
    """
    definitions: list[Tool] = []
    for number, tool in enumerate(tools):
        place = f"tools[{number}]"
        try:
            definitions += _read_tool(tool)
        except Refused as error:
            raise ThreadError(f"{place}{str(error).removeprefix('tools[0]')}") from None
        except ThreadError as error:
            raise ThreadError(f"{place}: {error}") from None
    return tuple(definitions)


def _read_tool(tool: ToolLike) -> tuple[Tool, ...]:
    if isinstance(tool, Tool):
        return (tool,)
    if isinstance(tool, FunctionTool):
        return (tool.definition,)
    if isinstance(tool, Mapping):
        return _read_definition(dict(cast(Mapping[str, Any], tool)))
    if inspect.isroutine(tool):
        return (_read_function(tool),)
    members = (getattr(tool, name, None) for name in ("name", "description", "parameters"))
    return (_make_tool(*members),)


def _read_function(function: Callable[..., Any]) -> Tool:
    try:
        return read_tool(function).definition
    except ConfigError as error:
        raise ThreadError(str(error)) from None


def _read_definition(raw: JsonObject) -> tuple[Tool, ...]:
    """The tools in one definition; Gemini entries and namespaces have several."""
    is_function = raw.get("type", "function") == "function"
    nested = raw.get("function") if is_function else None  # only Chat Completions nests it
    function = cast(JsonObject, nested) if isinstance(nested, dict) else raw
    is_plain = function.keys() <= COMMON_TOOL_MEMBERS or raw.keys() <= NATIVE_TOOL_MEMBERS
    if is_function and is_plain:
        schema = function.get("parameters", function.get("input_schema"))
        _check_members(function, str, ("description",), "a text")
        _check_members(function, dict, ("parameters", "input_schema"), "a JSON schema")
        description, strict = function.get("description"), function.get("strict")
        return (_make_tool(function.get("name"), description, schema, strict),)
    protocol = _protocol_of(raw)
    if protocol == GEMINI:  # each member is a tool with its settings: `{"googleSearch": {}}`
        _check_members(raw, (dict, list), raw, "an object with the tool's settings")
    body = {"tools": [raw], **CODECS[protocol].empty_request}
    request = CODECS[protocol].decode_request(body, "any")
    mark = raw.get("cache_control")
    if mark is None or len(request.tools) != 1:
        return request.tools
    (tool,) = request.tools
    definition = {**(tool.raw or {}).get(protocol, {}), "cache_control": mark}
    return (structs.replace(tool, raw={**(tool.raw or {}), protocol: definition}),)


def _check_members(
    raw: JsonObject, kind: type | tuple[type, ...], names: Iterable[str], expected: str
) -> None:
    for name in names:
        value = raw.get(name)
        if value is not None and not isinstance(value, kind):
            raise ThreadError(f"{name}: must be {expected}, not {type(value).__name__}")


_VERSIONED = lazy_pattern(r"\w+_20\d{6}")
"""The types of Anthropic's own tools end in a date: `web_search_20250305`."""


def _protocol_of(raw: JsonObject) -> str:
    """The protocol whose form a definition has."""
    kind = raw.get("type")
    if "input_schema" in raw or (isinstance(kind, str) and _VERSIONED.fullmatch(kind)):
        return "anthropic"
    if kind in ("function", "custom") and isinstance(raw.get(kind), dict):
        return "openai-chat"
    if kind is None and "name" not in raw:
        return GEMINI
    return "openai-responses" if kind is not None else "anthropic"


def _make_tool(name: Any, description: Any, schema: Any, strict: Any = None) -> Tool:
    """A tool with these members; all but the name are left out if they have the wrong type."""
    if not isinstance(name, str) or not name:
        raise ThreadError("a tool needs a name")
    return Tool(
        name,
        description if isinstance(description, str) else None,
        cast(JsonObject, schema) if isinstance(schema, dict) else None,
        strict if isinstance(strict, bool) else None,
    )


def without_stale_thinking(
    rows: Sequence[Row], stale_signatures: Set[Id]
) -> tuple[tuple[Row, ...], tuple[Loss, ...]]:
    """The rows without thinking whose signature is stale, and a loss for each changed row.

    A vendor refuses signed thinking if the messages before it have changed. A message that has only
    such thinking is left out.
    """
    if not stale_signatures:
        return tuple(rows), ()
    sendable: list[Row] = []
    losses: list[Loss] = []
    for row in rows:
        if row.id not in stale_signatures:
            sendable.append(row)
            continue
        message = row.message
        blocks = tuple(b for b in message.blocks if not isinstance(b, Thinking | Redacted))
        losses.append(make_loss("thinking_stale", f"messages[{len(sendable)}]"))
        if blocks:
            sendable.append(structs.replace(row, message=structs.replace(message, blocks=blocks)))
    return tuple(sendable), tuple(losses)


def is_sealed_summary(block: Block, protocol: str) -> bool:
    """Whether a block is a compaction that a vendor of this protocol cannot read."""
    if not isinstance(block, Opaque) or block.protocol == protocol:
        return False
    return block.raw.get("type") in VENDOR_SUMMARIES and not block.raw.get("content")


def has_sealed_summaries(messages: Sequence[Message], protocol: str) -> bool:
    """Whether a list has a compaction that only a vendor of another protocol can read."""
    return any(
        is_sealed_summary(block, protocol) for message in messages for block in message.blocks
    )


PortableText = Callable[[Opaque], str | None]
"""Returns the text that replaces a sealed compaction; `None` for an unknown compaction."""


def with_portable_summaries(
    messages: Sequence[Message], protocol: str, portable_text: PortableText
) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
    """The messages with text instead of sealed compactions, and a loss for each.

    An unknown compaction stays, and the codec drops it like any other block of another vendor.
    """
    changed: dict[int, Message] = {}
    losses: list[Loss] = []
    for number, message in enumerate(messages):
        blocks = list(message.blocks)
        for index, block in enumerate(blocks):
            if isinstance(block, Opaque) and is_sealed_summary(block, protocol):
                text = portable_text(block)
                if text is not None:
                    blocks[index] = Text(text)
                    path = f"messages[{number}]"
                    losses.append(make_loss("vendor_block_as_text", path, block.raw["type"]))
                    changed[number] = structs.replace(message, blocks=tuple(blocks))
    if not changed:
        return tuple(messages), ()
    return tuple(changed.get(i, message) for i, message in enumerate(messages)), tuple(losses)


ReadConfigs = Callable[[Sequence[Id]], dict[Id, JsonObject]]
"""Reads how the answers of these commits were generated."""


@checked_class(
    eager=("to_openai_params", "to_anthropic_params", "to_responses_params", "to_gemini_params")
)
class CompiledContext:
    """The messages of a thread at one commit.

    `messages`, `rows`, `ids`, `kinds`, `priorities` and `generation_configs` have one item for each
    message.
    """

    _load_view: Callable[[], View]
    _head: Id | None
    _tail: Sequence[Row] | None
    _count: Count
    _last: int | None
    _reasoning: bool
    _read_configs: ReadConfigs | None
    _counter_name: str
    _calibrate: Callable[[View], Calibration | None] | None
    _portable_text: PortableText | None

    def __init__(
        self,
        view: View | Callable[[], View],
        count: Count,
        *,
        head: Id | None = None,
        tail: Sequence[Row] | None = None,
        last: int | None = None,
        reasoning: bool = False,
        read_configs: ReadConfigs | None = None,
        counter_name: str = "",
        calibrate: Callable[[View], Calibration | None] | None = None,
        portable_text: PortableText | None = None,
    ) -> None:
        """`tail` are the rows, if they were read without compiling the whole thread.

        In that case `view` is a function that compiles it, and is called only if needed.
        """
        # `__setattr__` refuses every change, so the attributes are set in the instance's dict.
        vars(self).update(
            _load_view=(lambda: view) if isinstance(view, View) else view,
            _head=view.head if isinstance(view, View) else head,
            _tail=tail,
            _count=count,
            _last=last,
            _reasoning=reasoning,
            _read_configs=read_configs,
            _counter_name=counter_name,
            _calibrate=calibrate,
            _portable_text=portable_text,
        )

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a compiled context is frozen: {name!r} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a compiled context is frozen: {name!r} cannot be deleted")

    @cached_property
    def _view(self) -> View:
        return self._load_view()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows that a model sees."""
        if self._tail is not None:
            return tuple(self._tail)
        rows = visible_rows(self._view.rows, reasoning=self._reasoning)
        return tuple(rows if self._last is None else rows[max(0, len(rows) - self._last) :])

    @property
    def head(self) -> str | None:
        """The commit that was compiled."""
        return None if self._head is None else self._head.hex()

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(row.message for row in self.rows)

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids that `edit`, `pin` and `skip` take; an edit does not change them."""
        return tuple(_hex(row.id) for row in self.rows)

    @property
    def priorities(self) -> tuple[Priority, ...]:
        return tuple(row.priority for row in self.rows)

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(row.kind for row in self.rows)

    @property
    def generation_configs(self) -> tuple[JsonObject | None, ...]:
        """How each message was generated, if its commit says so."""
        commits = [b"" if row.id is None else self._view.commit_of(row.id) for row in self.rows]
        configs = {} if self._read_configs is None else self._read_configs(commits)
        return tuple(configs.get(commit) for commit in commits)

    @cached_property
    def calibrated(self) -> int:
        """`tokens`, corrected by the vendor's last report."""
        calibration = self._calibration
        return self.tokens if calibration is None else max(0, self.tokens + calibration.correction)

    @property
    def is_reported(self) -> bool:
        """Whether `calibrated` comes from a vendor's report."""
        return self._calibration is not None

    @property
    def token_source(self) -> str:
        """Where `calibrated` comes from: a vendor's report or a tokenizer.

        `api:100+50` is a report of 100 input and 50 output tokens; `o200k` is a tokenizer.
        """
        return self._counter_name if self._calibration is None else self._calibration.source

    @cached_property
    def _calibration(self) -> Calibration | None:
        return None if self._calibrate is None else self._calibrate(self._view)

    @cached_property
    def sendable(self) -> tuple[Message, ...]:
        """The messages as a vendor accepts them: without thinking whose signature is stale."""
        return tuple(row.message for row in self._sendable_rows[0])

    def sendable_to(self, protocol: str) -> tuple[Message, ...]:
        """The messages as a vendor of this protocol can read them.

        A compaction that only another vendor can read is replaced with an extract of the messages
        that it summarises.
        """
        return self._with_portable_summaries(protocol, self.sendable)[0]

    def _with_portable_summaries(
        self, protocol: str, messages: Sequence[Message]
    ) -> tuple[tuple[Message, ...], tuple[Loss, ...]]:
        if self._portable_text is None:
            return tuple(messages), ()
        return with_portable_summaries(messages, protocol, self._portable_text)

    @cached_property
    def _sendable_rows(self) -> tuple[tuple[Row, ...], tuple[Loss, ...]]:
        return without_stale_thinking(self.rows, self._view.stale_signatures())

    @property
    def setup(self) -> Setup:
        """The tools and parameters at this commit."""
        return self._view.setup or Setup()

    @property
    def tools(self) -> tuple[Tool, ...]:
        return self.setup.tools

    @cached_property
    def tokens(self) -> int:
        """The tokens of all messages, by the thread's counter."""
        if self._last is None and not self._reasoning:
            return self._view.tokens(self._count)
        return sum(self._count(row.message) for row in self.rows)

    def to_dicts(self) -> list[dict[str, Any]]:
        """`[{"role", "content", "name"?}]`; after `compile(reasoning=True)` also `thinking`."""
        return to_dicts(self.rows, reasoning=self._reasoning)

    def to_openai(self) -> list[dict[str, Any]]:
        """Chat Completions' messages, including the system messages."""
        return self._write("openai-chat", self.rows)

    def to_anthropic(self) -> dict[str, Any]:
        """`{"system": str | None, "messages": [...]}`, to read or to pass on by hand.

        For `client.messages.create(**...)` use `to_anthropic_params()`. It also has the tools, the
        parameters and `.losses`, and it omits `system` instead of setting it to `None`, which the
        SDK's types forbid.
        """
        return self._write("anthropic", self._sendable_rows[0])

    def to_responses(self) -> list[dict[str, Any]]:
        """The Responses API's input items, with the thinking of its own models."""
        return self._write("openai-responses", self._sendable_rows[0])

    def to_gemini(self) -> dict[str, Any]:
        """`{"system_instruction": str | None, "contents": [...]}`."""
        return as_dict(CODECS[GEMINI].write_messages(self.sendable_to(GEMINI)))[0]

    def to_text(self) -> str:
        """The conversation as text for people."""
        return to_text(self.rows, reasoning=self._reasoning)

    def to_openai_params(
        self,
        model: str | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        """The arguments for `chat.completions.create(**...)`.

        `tools` replace the thread's own. `system` is the policy for later system messages
        (`SystemPolicy`), and `max_tokens` limits the answer. Other parameters come from
        `Thread.setup()`, or are passed to `create()` beside these. `.losses` lists what was
        dropped, changed, added or moved.
        """
        return self._params("openai-chat", model, tools, system, max_tokens)

    def to_anthropic_params(
        self,
        model: str | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        """The arguments for `messages.create(**...)`; parameters as in `to_openai_params`."""
        return self._params("anthropic", model, tools, system, max_tokens)

    def to_responses_params(
        self,
        model: str | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        """The arguments for `responses.create(**...)`; parameters as in `to_openai_params`."""
        return self._params("openai-responses", model, tools, system, max_tokens)

    def to_gemini_params(
        self,
        model: str | None = None,
        *,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        """The arguments for `models.generate_content(**...)`; parameters as in
        `to_openai_params`."""
        return self._params(GEMINI, model, tools, system, max_tokens)

    def _write(self, protocol: str, rows: Sequence[Row]) -> Any:
        messages, _ = self._with_portable_summaries(protocol, readable_messages(rows))
        return exact_json.as_floats(CODECS[protocol].write_messages(messages))[0]

    def apply_recipe(self, recipe: Recipe) -> VendorParams:
        """Write the request that a recipe describes, from these messages."""
        messages, summary_losses = self._with_portable_summaries(recipe.protocol, self.sendable)
        losses = (*self._sendable_rows[1], *summary_losses)
        return write_params(recipe, messages, self.setup, losses)

    def follow(self, recipe: Recipe) -> VendorParams:
        """The former name of `apply_recipe`; a later version removes it."""
        return self.apply_recipe(recipe)

    def _params(
        self,
        protocol: str,
        model: str | None,
        tools: Sequence[ToolLike] | None = None,
        system: SystemPolicy = "auto",
        max_tokens: int | None = None,
    ) -> VendorParams:
        recipe = Recipe(
            head=self.head,
            protocol=protocol,
            model=model,
            system=system,
            max_tokens=max_tokens,
            tools=None if tools is None else read_tools(tools),
            last=self._last,
            reasoning=self._reasoning,
        )
        return self.apply_recipe(recipe)

    def __len__(self) -> int:
        return len(self.rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CompiledContext) and self.rows == other.rows

    def __repr__(self) -> str:
        """Commit and size; the tokens only if they are already counted."""
        tokens = vars(self).get("tokens")
        commit = "nothing" if self.head is None else self.head[:12]
        return f"<CompiledContext at {commit}: {describe_size(len(self.rows), tokens)}>"

    __hash__ = None  # pyright: ignore[reportAssignmentType] - messages hold dicts


def describe_size(messages: int, tokens: int | None) -> str:
    """`2 messages, 14 tokens`; without the tokens if they are unknown."""
    size = f"{messages} message{'' if messages == 1 else 's'}"
    return size if tokens is None else f"{size}, {tokens:,} tokens"


def _hex(id: Id | None) -> str:
    return "" if id is None else id.hex()


def to_dicts(rows: Iterable[Row], *, reasoning: bool = False) -> list[dict[str, Any]]:
    """`{"role", "content", "name"?}` for each row; the content is its readable text.

    With `reasoning`, `thinking` is the thinking inside the message, if it has any.
    """
    dicts: list[dict[str, Any]] = []
    for message in readable_messages(rows):
        thinking = thinking_text(message) if reasoning else ""
        dicts.append(_to_dict(message) | ({"thinking": thinking} if thinking else {}))
    return dicts


def to_text(rows: Iterable[Row], *, reasoning: bool = False) -> str:
    """The conversation as a person reads it, calls included; thinking only with `reasoning`."""
    paragraphs: list[str] = []
    for message in readable_messages(rows):
        thinking = thinking_text(message) if reasoning else ""
        parts = (f"[thinking: {thinking}]" if thinking else "", display_text(message))
        text = "\n".join(part for part in parts if part)
        paragraphs.append(f"{speaker(message)}: {text}")
    return "\n\n".join(paragraphs)


def readable_messages(rows: Iterable[Row]) -> list[Message]:
    """The messages of the rows, with reasoning as text.

    The rows have reasoning only if the caller asked for it. It must become text, because no vendor
    accepts unsigned thinking.
    """
    return [
        _thinking_as_text(row.message) if row.kind == "reasoning" else row.message for row in rows
    ]


def _thinking_as_text(message: Message) -> Message:
    thinking = [block.text for block in message.blocks if isinstance(block, Thinking)]
    return structs.replace(message, blocks=(Text("\n".join([*thinking, *texts(message.blocks)])),))


def _to_dict(message: Message) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.text}
    return body if message.name is None else {**body, "name": message.name}
