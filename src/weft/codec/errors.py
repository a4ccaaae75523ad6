"""Errors and refusals: the code that all protocols share.

A full context window is one kind of error, `context_length`, however the vendor phrases it. Agents
compact when they recognise it, so it must survive translation.

Each protocol reports a refusal in another field. In OpenAI's protocols, the refusal is a part of a
complete answer (`refusal`). Anthropic and Gemini stop an answer that is not allowed, and explain it
beside the stop reason: in `stop_details.explanation` or `finishMessage`
(https://platform.claude.com/docs/en/test-and-evaluate/strengthen-guardrails/handle-streaming-refusals).
A response of OpenAI Responses that fails because of a policy is a refusal too.

If the client's protocol has no field for the explanation, it becomes part of the answer. The
recorded answer has it too, because the client will echo the answer that it received.
Weft never invents an explanation.
"""

import re
from typing import Any, cast

from msgspec import structs

from weft.errors import NotAnAnswer, UpstreamError, UpstreamFailed
from weft.lazy import lazy_pattern
from weft.model import (
    ApiError,
    Close,
    ErrorKind,
    Event,
    Finish,
    JsonObject,
    Open,
    Refusal,
    Response,
    Stop,
    StopKind,
)

from .base import Codec, as_object

CONTEXT_LENGTH = lazy_pattern(
    r"prompt (?:is )?too long|input is too long|context[ _]length|maximum context|context window|"
    r"context[ _]size|context limit|input tokens exceed|exceeds? (?:the )?context|model's context|"
    r"maximum number of (?:input )?tokens|max(?:imum)? input token|maximum prompt length|"
    r"maximum (?:allowed )?input length|maximum model length|"
    r"input length and `max_tokens` exceed|input token count .{0,80}exceeds|"
    r"prompt token count .{0,40}exceeds|tokens? limit exceeded|exceeded model token limit|"
    r"too large for model|too many input tokens|"
    r"prompt contains (?:at least )?\d+ (?:input )?tokens|"
    r"model_max_prompt_tokens_exceeded|"
    r"reduce the length of (?:the|your) (?:messages|prompt|input)",
    re.IGNORECASE,
)
"""Messages that mean "the prompt does not fit", by Anthropic, OpenAI, Gemini, Bedrock, xAI, Groq,
DeepSeek, OpenRouter, Mistral, Together, Kimi, MiniMax, Copilot, vLLM, llama.cpp, LM Studio, Ollama.
Messages about a rate limit may match too, so its status and type are checked first."""

ABOUT_EARLIER_ANSWERS = lazy_pattern(
    r"thinking|thought|signature|reasoning|encrypted[ _]content|"
    r"\bitem\b.{0,80}(?:not found|without its required)|duplicate item",
    re.IGNORECASE,
)
"""Messages by which a vendor refuses content of its own earlier answers: Anthropic ("Invalid
`signature` in `thinking` block"), OpenAI ("Item with id 'rs_...' not found", "The encrypted content
... could not be verified"), Gemini ("Thought signature is not valid"), and Chat servers that do not
know `reasoning_content`."""

NO_REASON = "the upstream gave no reason"

VAGUE_MESSAGES = frozenset({NO_REASON, "Request contains an invalid argument."})
"""Messages that name no cause. Gemini refuses a bad signature in a long conversation like this."""

REFUSED_STATUSES = frozenset({400, 404, 422})
"""The HTTP statuses of a request whose content was refused."""

TOO_MANY_REQUESTS = 429

STATUS_KINDS: dict[int, ErrorKind] = {
    400: "invalid_request",
    401: "authentication",
    402: "billing",
    403: "permission",
    404: "not_found",
    408: "timeout",
    413: "too_large",
    422: "invalid_request",
    429: "rate_limit",
    500: "server",
    502: "server",
    503: "overloaded",
    504: "timeout",
    529: "overloaded",
}

STATUS_BY_KIND: dict[ErrorKind, int] = {
    "invalid_request": 400,
    "authentication": 401,
    "billing": 402,
    "permission": 403,
    "not_found": 404,
    "too_large": 413,
    "context_length": 400,
    "rate_limit": 429,
    "server": 500,
    "overloaded": 503,
    "timeout": 504,
}


AMBIGUOUS_KINDS: frozenset[ErrorKind | None] = frozenset(
    {None, "invalid_request", "too_large", "server"}
)
"""Kinds that vendors also use for a full context window."""


def kind_of(status: int, message: str, vendor_kind: ErrorKind | None) -> ErrorKind:
    """The kind of an error: from its message, else from the vendor's type, else from the status."""
    if (
        vendor_kind in AMBIGUOUS_KINDS
        and status != TOO_MANY_REQUESTS
        and CONTEXT_LENGTH.search(message)
    ):
        return "context_length"
    if vendor_kind is not None:
        return vendor_kind
    return STATUS_KINDS.get(status, "server" if status >= 500 or status == 0 else "invalid_request")


def error_status(error: ApiError, statuses: "dict[ErrorKind, int]" = STATUS_BY_KIND) -> int:
    """The HTTP status of an error.

    Some servers answer with 500 if the context window is full. That becomes 400, so that no client
    retries.
    """
    if error.kind == "context_length" and error.status >= 500:
        return statuses[error.kind]
    return error.status or statuses[error.kind]


def error_text(body: Any) -> str:
    """The message in an error body of any form; empty if there is none."""
    envelope = as_object(body)
    if envelope is None:
        return _without_html(body) if isinstance(body, str) else str(body or "")
    for value in (envelope.get("error"), envelope):
        if isinstance(value, str):
            return value
        fields = as_object(value) or {}
        for name in ("message", "detail", "msg"):
            if isinstance(message := fields.get(name), str) and message:
                return message
    return str(cast(JsonObject, body)) if envelope else ""


def _without_html(text: str) -> str:
    """A message with the title of an HTML page; any other text unchanged."""
    if text.lstrip()[:1] != "<":
        return text
    title = re.search(r"<title[^>]*>\s*(.*?)\s*</title", text, re.IGNORECASE | re.DOTALL)
    message = "the upstream answered with a page"
    return message if title is None else f"{message}: {title[1]}"


def is_about_restored_content(error: ApiError) -> bool:
    """Whether an error may be about restored content: parts of earlier answers that Weft added and
    the client did not send."""
    if error.status not in REFUSED_STATUSES or error.kind not in ("invalid_request", "not_found"):
        return False
    fields = (error.message, error.param, error.code, error.type)
    matches = any(field is not None and ABOUT_EARLIER_ANSWERS.search(field) for field in fields)
    return matches or error.message in VAGUE_MESSAGES


def upstream_failed(error: ApiError, *, native: bool = False) -> UpstreamFailed:
    """The exception for this error."""
    return UpstreamFailed(
        error.message, status=error.status, kind=error.kind, error=error, native=native
    )


def error_of(failure: UpstreamError) -> ApiError:
    """The error of an exception."""
    if not isinstance(failure, UpstreamFailed):
        return ApiError("server", str(failure), 502)
    if isinstance(failure.error, ApiError):
        return failure.error
    kind = cast("ErrorKind | None", failure.kind) or STATUS_KINDS.get(failure.status, "server")
    return ApiError(kind, str(failure), failure.status)


def not_an_answer(body: JsonObject, member: str) -> NotAnAnswer:
    """The error for a body without the member that every answer has; quotes its message, if any."""
    texts = (body[key] for key in ("detail", "message") if isinstance(body.get(key), str))
    message = next(texts, "")
    reason = f": {message[:200]}" if message else ""
    return NotAnAnswer(f"is missing, so this is no answer{reason}", param=member)


def failed_stop(
    stop_reason: Any, failures: "dict[str, ErrorKind]", detail: Any = None
) -> ApiError | None:
    """The error for a stop reason that is in `failures`, else `None`."""
    kind = failures.get(stop_reason) if isinstance(stop_reason, str) else None
    if kind is None:
        return None
    suffix = f": {detail}" if isinstance(detail, str) and detail else ""
    status = 502 if kind == "server" else STATUS_BY_KIND[kind]
    message = f"the upstream stopped with {stop_reason!r}{suffix}"
    return ApiError(kind, message, status, code=stop_reason)


BLOCKED_STOPS: frozenset[StopKind] = frozenset({"refusal", "filter"})
"""Stop reasons of an answer that was blocked."""


def refusal_explanation(stop: Stop | None) -> str:
    """The explanation beside the stop reason of a blocked answer; empty if there is none."""
    if stop is None or stop.kind not in BLOCKED_STOPS:
        return ""
    if isinstance(stop.details, str):
        return stop.details
    details = as_object(stop.details) or {}
    text = details.get("explanation") or details.get("blockReasonMessage")
    return text if isinstance(text, str) else ""


def declined_in_text(stop: Stop, *, refused: bool) -> bool:
    """Whether the model itself declined, in the text of a complete answer. `refused` is whether the
    answer has a refusal block."""
    return refused and stop.kind == "refusal" and stop.details is None


def refusal_must_be_inlined(source: Codec, target: Codec) -> bool:
    """Whether the explanation of a refusal must become part of the answer, because the target has
    no field for it."""
    return source.protocol != target.protocol and not target.has_stop_details


def inline_refusal(response: Response) -> Response:
    """The answer with the explanation of its refusal as a block, unless it has one."""
    text = refusal_explanation(response.stop)
    blocks = response.message.blocks
    if not text or any(isinstance(block, Refusal) for block in blocks):
        return response
    message = structs.replace(response.message, blocks=(*blocks, Refusal(text)))
    return structs.replace(response, message=message)


class RefusalInliner:
    """Adds the explanation of a refusal to a stream, as the last block of the answer."""

    def __init__(self) -> None:
        self._next_index = 0
        self._has_refusal = False

    def send(self, event: Event) -> list[Event]:
        """The event; before the end of a refused answer, the block with its explanation."""
        match event:
            case Open(index=index, block=block):
                self._next_index = max(self._next_index, index + 1)
                self._has_refusal = self._has_refusal or isinstance(block, Refusal)
            case Finish(stop=stop) if not self._has_refusal and (text := refusal_explanation(stop)):
                self._has_refusal = True
                return [Open(self._next_index, Refusal(text)), Close(self._next_index), event]
            case _:
                pass
        return [event]
