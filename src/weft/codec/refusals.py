"""Refusals, between wires that tell them in different places.

A model that declines says so in words. OpenAI's wires have a place for those within the answer,
`refusal`, and call the answer whole. Anthropic and Gemini cut an answer off that may not be given,
and explain it beside the stop: in `stop_details.explanation`, in `finishMessage`
(https://platform.claude.com/docs/en/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals).
Responses may also fail by a policy, which its error then names: that is a refusal, too.

So an explanation that has no place beside the stop is told within the answer, and the answer that
is kept has it too, because the client echoes what it was shown. Nobody's explanation is made up.
"""

from msgspec import structs

from weft.model import Event, Finish, Open, Refusal, Response, Stop, StopKind
from weft.model.events import Close

from .base import Codec, members

CUT: frozenset[StopKind] = frozenset({"refusal", "filter"})
"""Stops of an answer that may not be given."""


def explanation(stop: Stop | None) -> str:
    """The words by which a maker explains, beside the stop, why the answer may not be given."""
    if stop is None or stop.kind not in CUT:
        return ""
    if isinstance(stop.details, str):
        return stop.details
    details = members(stop.details) or {}
    words = details.get("explanation") or details.get("blockReasonMessage")
    return words if isinstance(words, str) else ""


def declined(stop: Stop, *, refused: bool) -> bool:
    """Whether the model itself declined, in words that are told (`refused`): its answer is whole,
    and nothing has cut it off."""
    return refused and stop.kind == "refusal" and stop.details is None


def refusal_must_be_inlined(source: Codec, target: Codec) -> bool:
    """Whether what a source explains beside the stop must be told to a target in the answer."""
    return source.protocol != target.protocol and not target.has_stop_details


def inline_refusal(response: Response) -> Response:
    """The answer with the explanation of its refusal in it, unless it has one."""
    words = explanation(response.stop)
    blocks = response.message.blocks
    if not words or any(isinstance(block, Refusal) for block in blocks):
        return response
    told = structs.replace(response.message, blocks=(*blocks, Refusal(words)))
    return structs.replace(response, message=told)


class RefusalInliner:
    """Events of a stream, with the explanation of a refusal as the last block of the answer."""

    def __init__(self) -> None:
        self._next = 0
        self._told = False

    def send(self, event: Event) -> list[Event]:
        """The events that say this one to a client which knows no explanation beside the stop."""
        match event:
            case Open(index=index, block=block):
                self._next = max(self._next, index + 1)
                self._told = self._told or isinstance(block, Refusal)
            case Finish(stop=stop) if not self._told and (words := explanation(stop)):
                self._told = True
                return [Open(self._next, Refusal(words)), Close(self._next), event]
            case _:
                pass
        return [event]
