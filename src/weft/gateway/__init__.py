"""The gateway: serves clients of any protocol from any upstream, and records each exchange."""

from .api_events import EventQueue
from .api_history import HISTORY_READS, HISTORY_WRITES, compare_words
from .api_reads import READS
from .api_writes import WRITES
from .app import build, open_state, serve, url_of
from .asgi import decompress, header_bytes, parse_body
from .auth import Caller, admit, has_credentials, upstream_credentials
from .auto_compact import SessionCompactor
from .bodies import ParsedBodies, ParsedBody, body_key, parse_reusing, tune_interpreter
from .codex_compaction import ask_for_summary, open_summaries
from .errors import failure
from .frames import FrameWriter, Transcript, read_frame
from .google import read_address
from .hints import (
    is_retry,
    is_side_question,
    is_summary_request,
    read_hint,
    read_parent_hint,
    read_side_kind,
)
from .identity import Continuation, TraceCache, is_distinctive, read_incoming
from .journal import Journal, leftover_journals, open_journal
from .live import LiveExchange, LiveFeed
from .log_output import LogOutput
from .recorder import ExchangeRecorder
from .records import (
    AnswerRecord,
    DigestCache,
    FailureRecord,
    RecordingContext,
    RequestLocation,
    RequestRecord,
    SentBody,
    find_response,
    record_answer,
    record_failure,
    record_request,
)
from .relay import FrameCutter, PassThroughRelay
from .render import render
from .settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    CompactionSettings,
    ConfigFile,
    Flags,
    KeyTable,
    LimitSettings,
    Settings,
    check_key_name,
    read_settings,
)
from .state import State, Titles
from .thread_views import Change, change_json, excerpt, message_text, part_json, read_changes

__all__ = [
    "DEFAULT_HOST",
    "DEFAULT_PORT",
    "HISTORY_READS",
    "HISTORY_WRITES",
    "READS",
    "WRITES",
    "AnswerRecord",
    "Caller",
    "Change",
    "CompactionSettings",
    "ConfigFile",
    "Continuation",
    "DigestCache",
    "EventQueue",
    "ExchangeRecorder",
    "FailureRecord",
    "Flags",
    "FrameCutter",
    "FrameWriter",
    "Journal",
    "KeyTable",
    "LimitSettings",
    "LiveExchange",
    "LiveFeed",
    "LogOutput",
    "ParsedBodies",
    "ParsedBody",
    "PassThroughRelay",
    "RecordingContext",
    "RequestLocation",
    "RequestRecord",
    "SentBody",
    "SessionCompactor",
    "Settings",
    "State",
    "Titles",
    "TraceCache",
    "Transcript",
    "admit",
    "ask_for_summary",
    "body_key",
    "build",
    "change_json",
    "check_key_name",
    "compare_words",
    "decompress",
    "excerpt",
    "failure",
    "find_response",
    "has_credentials",
    "header_bytes",
    "is_distinctive",
    "is_retry",
    "is_side_question",
    "is_summary_request",
    "leftover_journals",
    "message_text",
    "open_journal",
    "open_state",
    "open_summaries",
    "parse_body",
    "parse_reusing",
    "part_json",
    "read_address",
    "read_changes",
    "read_frame",
    "read_hint",
    "read_incoming",
    "read_parent_hint",
    "read_settings",
    "read_side_kind",
    "record_answer",
    "record_failure",
    "record_request",
    "render",
    "serve",
    "tune_interpreter",
    "upstream_credentials",
    "url_of",
]
