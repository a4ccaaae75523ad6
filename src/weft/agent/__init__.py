"""The agent loop over a thread and a model, and the events of its runs."""

from weft.function_tools import FunctionTool, read_tool

from .auto_compact import AskSummary, AutoCompactor, Compaction, Confirm, ContextUse
from .events import (
    AgentEvent,
    Emit,
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
from .loop import Agent, AgentAnswer, Answered, Ask, Run, converse
from .system_messages import Shown, present, skip_note, table_json
from .tools import Outcome

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentEvent",
    "Answered",
    "Ask",
    "AskSummary",
    "AutoCompactor",
    "Compaction",
    "Confirm",
    "ContextUse",
    "Emit",
    "Failure",
    "FunctionTool",
    "LossReport",
    "MessageComplete",
    "Outcome",
    "Run",
    "Shown",
    "SystemMessage",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnd",
    "ToolStart",
    "UsageReport",
    "converse",
    "present",
    "read_tool",
    "skip_note",
    "system_json",
    "table_json",
    "to_json",
]
