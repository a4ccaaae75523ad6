"""Refusals, which each protocol reports in another field.

In OpenAI's protocols a refusal is a part of the answer, `refusal`, and the answer is complete.
Anthropic and Gemini cut off an answer that may not be given, and explain it beside the stop reason:
in `stop_details.explanation` or `finishMessage`
(https://platform.claude.com/docs/en/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals).
An answer of Responses that fails because of a policy is a refusal, too.

If the client's protocol has no field for an explanation beside the stop reason, it becomes part of
the answer. The recorded answer has it too, because the client will echo the answer it received.
Weft never invents an explanation.
"""

from msgspec import structs

from weft.model import Close, Event, Finish, Open, Refusal, Response, Stop, StopKind

from .base import Codec, members

CUT: frozenset[StopKind] = frozenset({"refusal", "filter"})
"""Stop reasons of an answer that was blocked."""


def explanation(stop: Stop | None) -> str:
    """The explanation beside the stop reason of a blocked answer; empty if there is none."""
    if stop is None or stop.kind not in CUT:
        return ""
    if isinstance(stop.details, str):
        return stop.details
    details = members(stop.details) or {}
    text = details.get("explanation") or details.get("blockReasonMessage")
    return text if isinstance(text, str) else ""


def declined(stop: Stop, *, refused: bool) -> bool:
    """Whether the model itself declined in the answer's text (`refused`), so that the answer is
    complete and nothing cut it off."""
    return refused and stop.kind == "refusal" and stop.details is None


def refusal_must_be_inlined(source: Codec, target: Codec) -> bool:
    """Whether an explanation beside the source's stop reason must become part of the answer."""
    return source.protocol != target.protocol and not target.has_stop_details


def inline_refusal(response: Response) -> Response:
    """The answer with the explanation of its refusal as a block, unless it has one."""
    text = explanation(response.stop)
    blocks = response.message.blocks
    if not text or any(isinstance(block, Refusal) for block in blocks):
        return response
    message = structs.replace(response.message, blocks=(*blocks, Refusal(text)))
    return structs.replace(response, message=message)


class RefusalInliner:
    """Adds the explanation of a refusal to a stream, as the last block of the answer."""

    def __init__(self) -> None:
        self._next = 0
        self._has_refusal = False

    def send(self, event: Event) -> list[Event]:
        """This event, with the block before it if it is the end of a refused answer."""
        match event:
            case Open(index=index, block=block):
                self._next = max(self._next, index + 1)
                self._has_refusal = self._has_refusal or isinstance(block, Refusal)
            case Finish(stop=stop) if not self._has_refusal and (text := explanation(stop)):
                self._has_refusal = True
                return [Open(self._next, Refusal(text)), Close(self._next), event]
            case _:
                pass
        return [event]
