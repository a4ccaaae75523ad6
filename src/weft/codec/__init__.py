"""Wires and the model, both ways; pure. `CODECS` finds a protocol by its name.

A codec is imported when it is first asked for.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from weft.lazy import lazy_names

from .base import (
    CONVERSATION,
    INLINE,
    CachePolicy,
    Calls,
    Codec,
    Encoded,
    Frame,
    Losses,
    StreamDecoder,
    StreamEncoder,
    SystemPolicy,
    Target,
    ThinkingMember,
    parsed,
    thread_path,
    verbatim,
)
from .splice import splice
from .sse import SseParser, write_frame

if TYPE_CHECKING:
    from .anthropic import apply_last_system_cache_breakpoint
    from .anthropic.messages import build_anthropic_system_param, encode_message
    from .calls import CallRestorer, name_calls, name_event, restore_calls
    from .calm import carry
    from .chat.response import place_thinking, place_thinking_event
    from .echoes import is_plain, replace_answers
    from .errors import concerns_restored, error_of, failed
    from .forms import AnswerReader, decode_answer, form_of, unfold
    from .pairing import pair_messages
    from .refusals import RefusalTeller, tell_refusal, tells_apart
    from .repair import refuse_system_media
    from .sidecar import (
        apply_sidecar,
        calls_of,
        check_sidecar,
        make_answer_sidecar,
        make_sidecar,
        merge_answers,
        model_of,
    )

HOMES = {
    "anthropic": "weft.codec.anthropic",
    "openai-chat": "weft.codec.chat",
    "openai-responses": "weft.codec.responses",
    "gemini": "weft.codec.gemini",
}


class Codecs(Mapping[str, Codec]):
    """The codecs by protocol."""

    def __getitem__(self, protocol: str) -> Codec:
        return import_module(HOMES[protocol]).CODEC

    def __contains__(self, protocol: object) -> bool:
        return protocol in HOMES

    def __iter__(self) -> Iterator[str]:
        return iter(HOMES)

    def __len__(self) -> int:
        return len(HOMES)


CODECS = Codecs()

__getattr__ = lazy_names(
    __name__,
    {
        "AnswerReader": "weft.codec.forms",
        "CallRestorer": "weft.codec.calls",
        "name_calls": "weft.codec.calls",
        "name_event": "weft.codec.calls",
        "RefusalTeller": "weft.codec.refusals",
        "apply_last_system_cache_breakpoint": "weft.codec.anthropic",
        "apply_sidecar": "weft.codec.sidecar",
        "build_anthropic_system_param": "weft.codec.anthropic.messages",
        "calls_of": "weft.codec.sidecar",
        "carry": "weft.codec.calm",
        "check_sidecar": "weft.codec.sidecar",
        "concerns_restored": "weft.codec.errors",
        "decode_answer": "weft.codec.forms",
        "encode_message": "weft.codec.anthropic.messages",
        "error_of": "weft.codec.errors",
        "failed": "weft.codec.errors",
        "form_of": "weft.codec.forms",
        "make_answer_sidecar": "weft.codec.sidecar",
        "make_sidecar": "weft.codec.sidecar",
        "merge_answers": "weft.codec.sidecar",
        "model_of": "weft.codec.sidecar",
        "pair_messages": "weft.codec.pairing",
        "place_thinking": "weft.codec.chat.response",
        "place_thinking_event": "weft.codec.chat.response",
        "refuse_system_media": "weft.codec.repair",
        "is_plain": "weft.codec.echoes",
        "replace_answers": "weft.codec.echoes",
        "restore_calls": "weft.codec.calls",
        "tell_refusal": "weft.codec.refusals",
        "tells_apart": "weft.codec.refusals",
        "unfold": "weft.codec.forms",
    },
)

__all__ = [
    "CODECS",
    "CONVERSATION",
    "INLINE",
    "AnswerReader",
    "CachePolicy",
    "CallRestorer",
    "Calls",
    "Codec",
    "Encoded",
    "Frame",
    "Losses",
    "RefusalTeller",
    "SseParser",
    "StreamDecoder",
    "StreamEncoder",
    "SystemPolicy",
    "Target",
    "ThinkingMember",
    "apply_last_system_cache_breakpoint",
    "apply_sidecar",
    "build_anthropic_system_param",
    "calls_of",
    "carry",
    "check_sidecar",
    "concerns_restored",
    "decode_answer",
    "encode_message",
    "error_of",
    "failed",
    "form_of",
    "is_plain",
    "make_answer_sidecar",
    "make_sidecar",
    "merge_answers",
    "model_of",
    "name_calls",
    "name_event",
    "pair_messages",
    "parsed",
    "place_thinking",
    "place_thinking_event",
    "refuse_system_media",
    "replace_answers",
    "restore_calls",
    "splice",
    "tell_refusal",
    "tells_apart",
    "thread_path",
    "unfold",
    "verbatim",
    "write_frame",
]
