"""Wires and the model, both ways; pure. `CODECS` finds a protocol by its name."""

from .anthropic import CODEC as ANTHROPIC
from .anthropic import apply_last_system_cache_breakpoint
from .base import (
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
    parsed,
    verbatim,
)
from .calls import CallRestorer, restore_calls
from .chat import CODEC as CHAT
from .gemini import CODEC as GEMINI
from .responses import CODEC as RESPONSES
from .sidecar import (
    apply_sidecar,
    calls_of,
    check_sidecar,
    make_answer_sidecar,
    make_sidecar,
    merge_answers,
)
from .sse import SseParser, write_frame
from .system import build_anthropic_system_param, encode_message, merge_system_text

CODECS: dict[str, Codec] = {codec.protocol: codec for codec in (ANTHROPIC, CHAT, RESPONSES, GEMINI)}

__all__ = [
    "CODECS",
    "CachePolicy",
    "CallRestorer",
    "Calls",
    "Codec",
    "Encoded",
    "Frame",
    "Losses",
    "SseParser",
    "StreamDecoder",
    "StreamEncoder",
    "SystemPolicy",
    "Target",
    "apply_last_system_cache_breakpoint",
    "apply_sidecar",
    "build_anthropic_system_param",
    "calls_of",
    "check_sidecar",
    "encode_message",
    "make_answer_sidecar",
    "make_sidecar",
    "merge_answers",
    "merge_system_text",
    "parsed",
    "restore_calls",
    "verbatim",
    "write_frame",
]
