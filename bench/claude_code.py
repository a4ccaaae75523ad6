"""A request as Claude Code 2.1 sends it, grown to any number of messages.

The shape is that of recorded requests: a system prompt of three blocks (a billing line, then two
with `cache_control`), twelve tools, adaptive thinking, a later system message after the first
prompt, and `cache_control` on the last message. Each exchange is an answer with signed thinking, a
text and one or two tool calls, followed by their results. Results have `is_error`; every other one
is a list of text blocks. All text is invented; its lengths are typical.
"""

from typing import Any

MODEL = "claude-opus-4-8"
MARK = {"type": "ephemeral"}
TOOLS = (
    ("Agent", ("description", "prompt", "subagent_type", "model", "effort", "isolation")),
    ("Bash", ("command", "timeout", "description", "run_in_background")),
    ("Edit", ("file_path", "old_string", "new_string", "replace_all")),
    ("Glob", ("pattern", "path")),
    ("Grep", ("pattern", "path", "glob", "output_mode", "head_limit", "multiline")),
    ("Read", ("file_path", "offset", "limit", "pages")),
    ("ReportFindings", ("summary", "findings", "severity", "file", "line", "evidence")),
    ("ScheduleWakeup", ("delay_seconds", "reason", "prompt")),
    ("Skill", ("skill", "args")),
    ("ToolSearch", ("query", "max_results")),
    ("Workflow", ("name", "steps", "description", "inputs")),
    ("Write", ("file_path", "content")),
)


def claude_code_body(messages: int = 400) -> dict[str, Any]:
    """The request, with this many messages."""
    return {
        "model": MODEL,
        "messages": _messages(messages),
        "system": [
            {
                "type": "text",
                "text": "x-anthropic-billing-header: cc_version=2.1; cc_entrypoint=cli;",
            },
            {"type": "text", "text": "You are a Claude agent.", "cache_control": MARK},
            {
                "type": "text",
                "text": "\nYou work with the user toward their goals. " * 120,
                "cache_control": MARK,
            },
        ],
        "tools": [_tool(name, members) for name, members in TOOLS],
        "metadata": {"user_id": '{"device_id":"c796b470","session_id":"2f1c"}'},
        "max_tokens": 64000,
        "thinking": {"type": "adaptive"},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "output_config": {"effort": "high"},
        "stream": True,
    }


def _tool(name: str, members: tuple[str, ...]) -> dict[str, Any]:
    properties = {
        member: {"description": f"The {member} of this use of {name}. " * 2, "type": "string"}
        for member in members
    }
    return {
        "name": name,
        "description": f"{name} does one thing and returns what it did.\n\n" * 6,
        "input_schema": {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": properties,
            "required": list(members[:1]),
            "additionalProperties": False,
        },
    }


def _messages(count: int) -> list[dict[str, Any]]:
    reminder = "<system-reminder>\nThe user's instructions are shown below.\n</system-reminder>"
    messages: list[dict[str, Any]] = [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": reminder * 7},
                {"type": "text", "text": "Please find out why the tests fail, and fix it."},
            ],
        },
        {
            "role": "system",
            "content": "# Environment\n - Primary working directory: /project\n" * 40,
        },
    ]
    turn = 0
    while len(messages) < count - 1:
        messages += _exchange(turn) if turn % 10 else _conclusion(turn)
        turn += 1
    left = f"<total_tokens>{900000 - turn} tokens left</total_tokens>"
    messages = messages[: count - 1]
    if messages[-1]["role"] == "assistant":
        messages[-1] = {"role": "user", "content": "Go on."}
    messages.append(
        {"role": "system", "content": [{"type": "text", "text": left, "cache_control": MARK}]}
    )
    return messages


def _thinking(turn: int) -> dict[str, Any]:
    text = f"Step {turn}: the failing test imports a module that was moved. " * 4
    return {"type": "thinking", "thinking": text, "signature": f"EqQB{turn:04d}" + "CkYIBxgC" * 40}


def _exchange(turn: int) -> list[dict[str, Any]]:
    """An answer with one or two calls, and their results."""
    calls: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for number in range(2 if turn % 4 == 0 else 1):
        call_id = f"toolu_01{turn:04d}{number}aXbYcZdQeRfSgT"
        name, arguments = (
            ("Bash", {"command": f"pytest tests/test_{turn}.py -q | tail -20", "timeout": 120000}),
            ("Read", {"file_path": f"/project/src/module_{turn}.py", "offset": 1, "limit": 200}),
        )[(turn + number) % 2]
        calls.append({"type": "tool_use", "id": call_id, "name": name, "input": arguments})
        output = f"{turn}\tdef function_{turn}(x):\n\t    return x\n" * 16
        results.append(
            {
                "tool_use_id": call_id,
                "type": "tool_result",
                "content": [{"type": "text", "text": output}] if turn % 2 else output,
                "is_error": turn % 7 == 0,
            }
        )
    text = {"type": "text", "text": f"I look at module {turn} next. " * 3}
    return [
        {"role": "assistant", "content": [_thinking(turn), text, *calls]},
        {"role": "user", "content": results},
    ]


def _conclusion(turn: int) -> list[dict[str, Any]]:
    """An answer without calls, and the user's next prompt."""
    text = {"type": "text", "text": f"Module {turn} is fixed: the import was wrong. " * 8}
    return [
        {"role": "assistant", "content": [_thinking(turn), text]},
        {"role": "user", "content": [{"type": "text", "text": f"Good. Now look at file {turn}."}]},
    ]
