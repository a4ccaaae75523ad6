"""What an agent tells whoever watches it: one small closed union of frozen events.

The loop yields them, the Claude bridge maps a foreign agent's messages to them, the socket sends
them as JSON, the terminal prints them. Each knows its wire name by its tag, so `to_json` is the
only spelling of an event outside Python.

Deltas of one block share its `id`; a tool's start and end share the id of the call. A run ends
with exactly one `MessageComplete` or one `Failure`, and nothing follows it.

`SystemMessage` comes from below, because compaction emits it too. Its data is foreign: it is laid
flat beside `type` and `subtype`, and can never replace them.
"""

from collections.abc import Iterable

from msgspec import Struct, to_builtins

from weft.compact import SystemMessage
from weft.model import JsonObject, Loss, loss_json, loss_lines


class TextDelta(Struct, frozen=True, gc=False, tag="text_delta"):
    """More words of the answer."""

    id: str
    text: str


class ThinkingDelta(Struct, frozen=True, gc=False, tag="thinking_delta"):
    """More words of reasoning; never part of the answer."""

    id: str
    text: str


class ToolStart(Struct, frozen=True, gc=False, tag="tool_start"):
    """A tool is about to run. `input` is the parsed object, or the text where it is not one."""

    id: str
    name: str
    input: JsonObject | str


class ToolEnd(Struct, frozen=True, gc=False, tag="tool_end"):
    """The tool with that call id answered, or failed."""

    id: str
    content: str
    is_error: bool = False


class UsageReport(Struct, frozen=True, gc=False, tag="usage", omit_defaults=True):
    """Tokens of one answer as the model's server counted them; `input` includes the cached ones.

    `window` is how many fit the model, where that is known; `cost` is dollars so far.
    """

    input: int
    output: int
    cached: int | None = None
    written: int | None = None
    reasoning: int | None = None
    window: int | None = None
    cost: float | None = None


class LossReport(Struct, frozen=True, tag="losses"):
    """What the model could not be sent (losses of meaning), before its answer.

    A run reports each loss once. As JSON this is a system message, so the page and the terminal
    show it like any other.
    """

    model: str
    losses: tuple[Loss, ...]

    @property
    def lines(self) -> list[str]:
        """One line for each kind of loss."""
        return readable_losses(self.losses)


class MessageComplete(Struct, frozen=True, gc=False, tag="message_complete"):
    """The run is over; `stop` says why, in the model's words for it (`end`, `length`, ...)."""

    stop: str = "end"


class Failure(Struct, frozen=True, gc=False, tag="error", omit_defaults=True):
    """The run is over because something broke; what was said before stays said."""

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


class Tell(Struct, frozen=True):
    """A step of a flow: let the watchers know; answered with nothing."""

    event: AgentEvent


def to_json(event: AgentEvent) -> JsonObject:
    """The typed JSON of an event, as it goes over a socket."""
    if isinstance(event, SystemMessage):
        return system_json(event.subtype, event.data)
    if isinstance(event, LossReport):
        lines = [f"- {line}" for line in event.lines]
        title = f"**Not everything could be sent to {event.model}:**"
        content = "\n".join([title, "", *lines])
        return system_json(
            "losses", {"content": content, "losses": [loss_json(loss) for loss in event.losses]}
        )
    plain: JsonObject = to_builtins(event)
    return plain


def readable_losses(losses: Iterable[Loss]) -> list[str]:
    """One line for each kind of loss of meaning."""
    return [line.removeprefix("meaning: ") for line in loss_lines(losses)]


def system_json(subtype: str, data: JsonObject) -> JsonObject:
    """A system message laid flat: a key in its data never replaces `type` or `subtype`."""
    rest = {key: value for key, value in data.items() if key not in ("type", "subtype")}
    return {"type": "system", "subtype": subtype, **rest}
