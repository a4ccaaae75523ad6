"""A request: the conversation, the tools and the parameters.

Tools and parameters are kept twice on purpose. `raw` has the source's own members, so that the same
protocol gets exactly what it wrote. `params` and the fields of `Tool` are the shared meaning, from
which requests for every other protocol are written. `rest` lists the members without a shared
meaning, by their path in the caller's body: each is a loss if the target has another protocol.
"""

from collections.abc import Callable, Mapping
from sys import intern
from typing import Any, Literal

from msgspec import Struct, field
from msgspec.structs import force_setattr

from weft.errors import WrongValue

from .message import Block, Ext, JsonObject, Message

Position = tuple[int | str, ...]
"""A position in a request: `(message, block)`, `(message, block, inner)`, `("tools", n)`,
`("params", name)`, or `()`. In an answer also `("stop",)`, `("member", name)` and
`("alternative", number)`. The third element `"arguments"` means the arguments of a call."""


class Tool(Struct, frozen=True, gc=False, omit_defaults=True):
    """A tool the model may call. `kind` is `function`, `custom`, or the vendor's own type name.

    `parameters` is the JSON schema of a function, `raw` the definition as the source wrote it, and
    `namespace` the group of tools that the name belongs to.
    """

    name: str
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    kind: str = "function"
    raw: Ext | None = None
    namespace: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.kind, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongValue("Tool.kind", f"must be str, not {type(self.kind).__name__}")
        # Defaults are left out of the stored form by identity, so equal kinds must be one object.
        force_setattr(self, "kind", intern(self.kind))


class ToolChoice(Struct, frozen=True, gc=False, omit_defaults=True):
    """`auto`, `any` (some tool), `none`, or `tool` with its name.

    `names` lists the tools that may be called, if the caller allows only some of them.
    """

    kind: Literal["auto", "any", "none", "tool"]
    name: str | None = None
    names: tuple[str, ...] = ()


class Format(Struct, frozen=True, gc=False, omit_defaults=True):
    """The shape the answer must have: `text`, `json`, or `schema`."""

    kind: Literal["text", "json", "schema"]
    schema: JsonObject | None = None
    name: str | None = None
    description: str | None = None
    strict: bool | None = None


class Reasoning(Struct, frozen=True, gc=False, omit_defaults=True):
    """How much to think. `mode` is `None` if the caller only set an effort."""

    mode: Literal["on", "off", "adaptive"] | None = None
    effort: str | None = None
    budget: int | None = None
    summary: str | None = None


class Params(Struct, frozen=True, gc=False, omit_defaults=True):
    """Parameters that two or more protocols have; `None` means that the caller did not set it."""

    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stream: bool | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    format: Format | None = None
    reasoning: Reasoning | None = None
    verbosity: str | None = None
    service_tier: str | None = None
    user: str | None = None
    metadata: JsonObject | None = None
    store: bool | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None


class Wire(Struct, frozen=True):
    """The protocol that a request came in, so that losses and errors use the caller's terms.

    `locate` turns a position into a path in the caller's body. `part_name` returns the caller's
    name for a block (`image_url`, `input_image`).
    """

    protocol: str
    locate: Callable[[Position], str]
    part_name: Callable[[Block], str]


class Request(Struct, frozen=True, gc=False):
    """A request to a model. Leading system messages are the first messages of the list.

    `marks` are cache breakpoints by position, as the source wrote them. They are hints for one
    request and not content, so no hash covers them. `raw` are the tools and parameters as the
    source wrote them, by protocol. `rest` are those that `params` and `tools` cannot represent.
    `wire` describes the protocol that the request came in.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    params: Params = Params()
    marks: Mapping[Position, Any] = field(default_factory=dict[Position, Any])
    raw: Ext = field(default_factory=dict[str, JsonObject])
    rest: Mapping[str, Any] = field(default_factory=dict[str, Any])
    wire: Wire | None = None
