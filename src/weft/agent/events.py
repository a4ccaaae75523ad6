"""The events of an agent's run: a closed union of frozen values.

The loop yields them, `claude` converts the Claude SDK's messages to them, the gateway sends them as
JSON, the terminal prints them. An event's `type` in JSON is its tag, and `to_json` is the only
function that writes it.

Deltas of one block share its `id`; a tool's start and end share the id of the call. A run ends
with exactly one `MessageComplete` or `Failure`.

`SystemMessage` is defined in `compact`, which emits it too. Its data is untrusted: the members are
written beside `type` and `subtype`, and can never replace them.
"""

from collections.abc import Iterable

from msgspec import Struct, to_builtins

from weft.compact import SystemMessage
from weft.model import JsonObject, Loss, loss_json, loss_lines


class TextDelta(Struct, frozen=True, gc=False, tag="text_delta"):
    """More text of the answer."""

    id: str
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False, tag="thinking_delta"):
    """More text of the thinking; never part of the answer."""

    id: str
    text: str


class ToolStart(Struct, frozen=True, gc=False, tag="tool_start"):
    """A tool is about to run. `input` is the parsed object, or the text if it is not one."""

    id: str
    name: str
    input: JsonObject | str


class ToolEnd(Struct, frozen=True, gc=False, tag="tool_end"):
    """The call with this id ended, with a result or an error."""

    id: str
    content: str
    is_error: bool = False


class UsageReport(Struct, frozen=True, gc=False, tag="usage", omit_defaults=True):
    """Tokens of one answer as the model's server counted them; `input` includes the cached ones.

    `written_1h` is the part of `written` that the cache keeps for an hour.
    `window` is the size of the model's window, if known; `cost` is in dollars, for the run so far.
    """

    input: int
    output: int
    cached: int | None = None
    written: int | None = None
    written_1h: int | None = None
    reasoning: int | None = None
    window: int | None = None
    cost: float | None = None


class LossReport(Struct, frozen=True, tag="losses"):
    """The losses of a request that may change the answer (not of level `form`), reported before it.

    A run reports each loss once. As JSON it has the form of a `SystemMessage`, so the page and the
    terminal show it like one.
    """

    model: str
    losses: tuple[Loss, ...]

    @property
    def lines(self) -> list[str]:
        """One line for each kind of loss."""
        return readable_losses(self.losses)


class MessageComplete(Struct, frozen=True, gc=False, tag="message_complete"):
    """The run is over; `stop` is the reason (`end`, `length`, ...)."""

    stop: str = "end"


class Failure(Struct, frozen=True, gc=False, tag="error", omit_defaults=True):
    """The run failed; everything committed before stays in the thread.

    `place` is the field or setting that is wrong, if there is one.
    """

    message: str
    status: int | None = None
    place: str | None = None


AgentEvent = (
    TextDelta
    | ThinkingDelta
    | ToolStart
    | ToolEnd
    | UsageReport
    | LossReport
    | SystemMessage
    | MessageComplete
    | Failure
)


class Emit(Struct, frozen=True):
    """A step of a flow: yield this event to the caller of the run."""

    event: AgentEvent


def to_json(event: AgentEvent) -> JsonObject:
    """An event as JSON, with its `type`."""
    if isinstance(event, SystemMessage):
        return system_json(event.subtype, event.data)
    if isinstance(event, LossReport):
        lines = [f"- {line}" for line in event.lines]
        title = f"**Not everything could be sent to {event.model}:**"
        content = "\n".join([title, "", *lines])
        return system_json(
            "losses", {"content": content, "losses": [loss_json(loss) for loss in event.losses]}
        )
    data: JsonObject = to_builtins(event)
    return data


def readable_losses(losses: Iterable[Loss]) -> list[str]:
    """One line for each kind of loss of meaning."""
    return [line.removeprefix("meaning: ") for line in loss_lines(losses)]


def system_json(subtype: str, data: JsonObject) -> JsonObject:
    """A `SystemMessage` as one flat object; its data never replaces `type` or `subtype`."""
    members = {key: value for key, value in data.items() if key not in ("type", "subtype")}
    return {"type": "system", "subtype": subtype, **members}
