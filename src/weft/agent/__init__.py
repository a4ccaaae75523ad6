"""The agent loop over a thread and a model, and the events of its runs."""

from weft.function_tools import FunctionTool, read_tool

from .auto_compact import Compaction, Confirm, ContextUse
from .events import (
    AgentEvent,
    Failure,
    LossReport,
    MessageComplete,
    SystemMessage,
    TextDelta,
    ThinkingDelta,
    ToolEnd,
    ToolStart,
    UsageReport,
    system_json,
    to_json,
)
from .loop import Agent, AgentAnswer
from .system_messages import Shown, present, skip_note, table_json

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentEvent",
    "Compaction",
    "Confirm",
    "ContextUse",
    "Failure",
    "FunctionTool",
    "LossReport",
    "MessageComplete",
    "Shown",
    "SystemMessage",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnd",
    "ToolStart",
    "UsageReport",
    "present",
    "read_tool",
    "skip_note",
    "system_json",
    "table_json",
    "to_json",
]
