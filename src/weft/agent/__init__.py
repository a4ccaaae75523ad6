"""The agent loop over a thread and a model, and the events of its runs."""

from weft.function_tools import FunctionTool, ToolFailed, read_tool, tool

from .auto_compact import (
    AskSummary,
    AutoCompactor,
    Compaction,
    Confirm,
    ContextUse,
    MessageCounts,
)
from .claude import load_sdk as load_claude_sdk
from .claude_agent import (
    ClaudeAgent,
    ClaudeOptions,
    ClaudeSession,
    claude_session_path,
    is_installed as is_claude_installed,
    write_private,
)
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
from .loop import Agent, AgentAnswer, AgentTool, Answered, Ask, Run, RunState, ToolSource, converse
from .mcp import McpServer
from .permissions import (
    AskPermission,
    AskUser,
    Permission,
    Permissions,
    ToolRequest,
    UserQuestion,
    permissions_path,
)
from .system_messages import Shown, present, skip_note, table_json
from .tools import Outcome

__all__ = [
    "Agent",
    "AgentAnswer",
    "AgentEvent",
    "AgentTool",
    "Answered",
    "Ask",
    "AskPermission",
    "AskSummary",
    "AskUser",
    "AutoCompactor",
    "ClaudeAgent",
    "ClaudeOptions",
    "ClaudeSession",
    "Compaction",
    "Confirm",
    "ContextUse",
    "Emit",
    "Failure",
    "FunctionTool",
    "LossReport",
    "McpServer",
    "MessageComplete",
    "MessageCounts",
    "Outcome",
    "Permission",
    "Permissions",
    "Run",
    "RunState",
    "Shown",
    "SystemMessage",
    "TextDelta",
    "ThinkingDelta",
    "ToolEnd",
    "ToolFailed",
    "ToolRequest",
    "ToolSource",
    "ToolStart",
    "UsageReport",
    "UserQuestion",
    "claude_session_path",
    "converse",
    "is_claude_installed",
    "load_claude_sdk",
    "permissions_path",
    "present",
    "read_tool",
    "skip_note",
    "system_json",
    "table_json",
    "to_json",
    "tool",
    "write_private",
]
