"""Codecs: translate each protocol to the model and back, without I/O. `CODECS` finds a protocol by
its name.

A codec is imported when it is first asked for.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

from .base import (
    CODECS,
    INLINE,
    PACKAGES,
    Auth,
    CachePolicy,
    Codec,
    Encoded,
    Frame,
    Http,
    Losses,
    ModelList,
    ModelPaths,
    OriginalTool,
    PreviousAnswer,
    RenamedTools,
    StreamDecoder,
    StreamEncoder,
    SystemPolicy,
    Target,
    ThinkingMember,
    Vendor,
    as_dict,
    parsed,
    thread_path,
    verbatim,
)
from .edit_json import JsonLayout, edit_json, find_layout
from .stream import SseParser, write_frame

if TYPE_CHECKING:
    from weft.codec.anthropic.request import (
        build_anthropic_system_param,
        encode_message,
        write_plain_message,
    )

    from .answer import (
        AnswerOptions,
        AnswerReader,
        AnswerTranslator,
        AnswerWriter,
        Piece,
        decode_answer,
        detect_form,
        unfold,
    )
    from .anthropic import apply_last_system_cache_breakpoint
    from .echoes import is_plain, replace_answers, replace_messages
    from .errors import error_of, is_about_restored_content, upstream_failed
    from .fast_path import SimpleRequest, read_simple
    from .outgoing import WrittenRequest, write_request
    from .pairing import pair_messages
    from .repair import EMPTY_MESSAGE_TEXT, refuse_system_media
    from .sidecar import (
        apply_sidecar,
        check_sidecar,
        make_sidecar,
        merge_answers,
        model_of,
        renamed_tools_of,
    )

__getattr__ = lazy_names(
    __name__,
    {
        "answer": (
            "AnswerOptions AnswerReader AnswerTranslator AnswerWriter Piece decode_answer "
            "detect_form unfold"
        ),
        "anthropic": "apply_last_system_cache_breakpoint",
        "anthropic.request": "build_anthropic_system_param encode_message write_plain_message",
        "echoes": "is_plain replace_answers replace_messages",
        "errors": "error_of is_about_restored_content upstream_failed",
        "fast_path": "SimpleRequest read_simple",
        "outgoing": "WrittenRequest write_request",
        "pairing": "pair_messages",
        "repair": "EMPTY_MESSAGE_TEXT refuse_system_media",
        "sidecar": (
            "apply_sidecar check_sidecar make_sidecar merge_answers model_of renamed_tools_of"
        ),
    },
)

__all__ = [
    "CODECS",
    "EMPTY_MESSAGE_TEXT",
    "INLINE",
    "PACKAGES",
    "AnswerOptions",
    "AnswerReader",
    "AnswerTranslator",
    "AnswerWriter",
    "Auth",
    "CachePolicy",
    "Codec",
    "Encoded",
    "Frame",
    "Http",
    "JsonLayout",
    "Losses",
    "ModelList",
    "ModelPaths",
    "OriginalTool",
    "Piece",
    "PreviousAnswer",
    "RenamedTools",
    "SimpleRequest",
    "SseParser",
    "StreamDecoder",
    "StreamEncoder",
    "SystemPolicy",
    "Target",
    "ThinkingMember",
    "Vendor",
    "WrittenRequest",
    "apply_last_system_cache_breakpoint",
    "apply_sidecar",
    "as_dict",
    "build_anthropic_system_param",
    "check_sidecar",
    "decode_answer",
    "detect_form",
    "edit_json",
    "encode_message",
    "error_of",
    "find_layout",
    "is_about_restored_content",
    "is_plain",
    "make_sidecar",
    "merge_answers",
    "model_of",
    "pair_messages",
    "parsed",
    "read_simple",
    "refuse_system_media",
    "renamed_tools_of",
    "replace_answers",
    "replace_messages",
    "thread_path",
    "unfold",
    "upstream_failed",
    "verbatim",
    "write_frame",
    "write_plain_message",
    "write_request",
]
