"""Wires and the model, both ways; pure. `CODECS` finds a protocol by its name."""

from .anthropic import CODEC as ANTHROPIC
from .anthropic import apply_last_system_cache_breakpoint
from .base import (
    CachePolicy,
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
from .chat import CODEC as CHAT
from .gemini import CODEC as GEMINI
from .responses import CODEC as RESPONSES
from .sidecar import apply_sidecar, check_sidecar, make_answer_sidecar, make_sidecar
from .sse import SseParser, write_frame
from .system import build_anthropic_system_param, encode_message, merge_system_text

CODECS: dict[str, Codec] = {codec.protocol: codec for codec in (ANTHROPIC, CHAT, RESPONSES, GEMINI)}

__all__ = [
    "CODECS",
    "CachePolicy",
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
    "check_sidecar",
    "encode_message",
    "make_answer_sidecar",
    "make_sidecar",
    "merge_system_text",
    "parsed",
    "verbatim",
    "write_frame",
]
