"""System events and what a person sees of them: (event, kind, text), or `None` for nothing.

One table for Python, for the page's module under node, and for the page in a browser.
"""

from typing import Any

METADATA = (
    *("init", "session_metadata", "session_state_changed", "session_title_changed"),
    *("thinking", "thinking_tokens", "hook_started", "hook_progress", "hook_response"),
    *("stop_hook_summary", "memory_saved", "memory_recall", "turn_duration", "turn_preempted"),
    *("turn_handoff_available", "post_turn_summary", "away_summary", "task_started"),
    *("task_progress", "task_updated", "task_summary", "background_tasks_changed"),
    *("permission_retry", "permission_check_status", "commands_changed", "files_persisted"),
    *("file_snapshot", "plugin_install", "elicitation_complete", "vcs_state_changed"),
    *("code_change_published", "per_turn_effort_changed"),
)
STARTED = (
    "⚡ **Auto-Compaction Started**\n\nThe conversation is getting long, so its older parts are "
    "being folded into a summary. Pinned messages and the latest turns stay as they are."
)
RUNNING = "⚡ **Compacting**\n\nOlder turns are being folded into a summary …"
TOKENS = {"pre_tokens": 11597, "post_tokens": 2580}

Row = tuple[str, dict[str, Any], tuple[str, str] | None]

V2: list[Row] = [
    ("V2 init with tools", {"subtype": "init", "tools": [{"name": "Bash"}]}, None),
    ("V2 init with content", {"subtype": "init", "content": "all my tools"}, None),
    ("V2 init in capitals", {"subtype": "INIT", "text": "x"}, None),
]
V3: list[Row] = [
    ("V3 started, no data", {"subtype": "compaction_start"}, ("compaction", STARTED)),
    (
        "V3 started, own words do not replace ours",
        {"subtype": "Compaction_Start", "content": "stats"},
        ("compaction", STARTED),
    ),
    (
        "V3 an unknown compaction is shown with nothing to say",
        {"subtype": "microCOMPACTed"},
        (
            "compaction",
            "⚡ **Compaction**\n\nOlder parts of the conversation are being summarised.",
        ),
    ),
    (
        "V3 an unknown compaction speaks for itself",
        {"subtype": "precompact_note", "message": "soon"},
        ("compaction", "soon"),
    ),
    (
        "V3 status compacting",
        {"subtype": "status", "status": "compacting"},
        ("compaction", RUNNING),
    ),
    ("V3 status requesting", {"subtype": "status", "status": "requesting"}, None),
    ("V3 status null", {"subtype": "status", "status": None}, None),
    (
        "V3 status failed",
        {"subtype": "status", "compact_result": "failed", "compact_error": "too short"},
        ("compaction", "⚡ **Compaction failed**: too short"),
    ),
    (
        "V3 boundary with trigger",
        {"subtype": "compact_boundary", "compact_metadata": {"trigger": "auto", **TOKENS}},
        ("compaction", "⚡ **Compacted** (auto): 11597 → 2580 tokens"),
    ),
    (
        "V3 boundary after a step that failed",
        {
            "subtype": "compact_boundary",
            "compact_metadata": {
                "trigger": "auto",
                **TOKENS,
                "method": "extract",
                "reason": "no usable summary from 'm': it declined",
            },
        },
        (
            "compaction",
            "⚡ **Compacted** (auto): 11597 → 2580 tokens, by extract: no usable summary from "
            "'m': it declined",
        ),
    ),
    (
        "V3 one step failed and the next runs",
        {"subtype": "compact_fallback", "content": "It failed. Next: an extract."},
        ("compaction", "It failed. Next: an extract."),
    ),
    (
        "V3 boundary without trigger",
        {"subtype": "compact_boundary", "compact_metadata": TOKENS},
        ("compaction", "⚡ **Compacted**: 11597 → 2580 tokens"),
    ),
    (
        "V3 boundary, tokens before only",
        {"subtype": "compact_boundary", "compact_metadata": {"pre_tokens": 9.0}},
        ("compaction", "⚡ **Compacted**: 9 tokens before"),
    ),
    (
        "V3 boundary, metadata of another shape",
        {"subtype": "compact_boundary", "compact_metadata": [1, "x"]},
        ("compaction", "⚡ **Compacted**"),
    ),
]
V4: list[Row] = [
    ("V4 a figure is no text", {"subtype": "warning", "content": 5}, None),
    ("V4 nor is nought", {"subtype": "warning", "content": 0, "message": "w"}, ("info", "w")),
    ("V4 content", {"subtype": "warning", "content": "x"}, ("info", "x")),
    ("V4 message", {"subtype": "warning", "message": "x"}, ("info", "x")),
    ("V4 text", {"subtype": "warning", "text": "x"}, ("info", "x")),
    ("V4 order", {"subtype": "w", "text": "3", "message": "2", "content": "1"}, ("info", "1")),
    ("V4 blank gives way", {"subtype": "w", "content": " \n", "message": "2"}, ("info", "2")),
    ("V4 not a string gives way", {"subtype": "w", "content": {}, "text": "3"}, ("info", "3")),
    ("V4 nothing said", {"subtype": "warning", "level": "high"}, None),
    ("V4 only blank", {"subtype": "warning", "content": "\u00a0\t"}, None),
    ("V4 empty subtype", {"subtype": "", "content": "x"}, ("info", "x")),
]
V5: list[Row] = [
    ("V5 informational", {"subtype": "informational", "content": "x"}, ("info", "x")),
    ("V5 notification", {"subtype": "notification", "text": "x"}, ("info", "x")),
    ("V5 output", {"subtype": "local_command_output", "content": "used"}, ("info", "used")),
    (
        "V5 retry",
        {
            "subtype": "api_retry",
            **{"attempt": 1, "max_retries": 10, "retry_delay_ms": 547},
            **{"error_status": 529, "error": "overloaded"},
        },
        (
            "info",
            "The model's server said 529 (overloaded). Attempt 1 of 10, again in 547 ms.",
        ),
    ),
    (
        "V5 retry without an answer",
        {
            "subtype": "api_retry",
            **{"attempt": 1, "max_retries": 3, "retry_delay_ms": 900, "error_status": None},
        },
        ("info", "The model's server did not answer. Attempt 1 of 3, again in 900 ms."),
    ),
    (
        "V5 api error",
        {"subtype": "api_error", "error": "boom"},
        ("info", "The model's server failed: boom"),
    ),
    (
        "V5 fallback",
        {"subtype": "model_fallback", "original_model": "a", "fallback_model": "b"},
        ("info", "a could not answer; b does."),
    ),
    (
        "V5 denied",
        {"subtype": "permission_denied", "tool_name": "Bash", "message": "by rule"},
        ("info", "**Bash** was not allowed: by rule"),
    ),
    (
        "V5 task",
        {"subtype": "task_notification", "status": "completed", "summary": "done"},
        ("info", "Task completed: done"),
    ),
    ("V5 a name of JavaScript's", {"subtype": "constructor", "content": "x"}, ("info", "x")),
    ("V5 another", {"subtype": "__proto__", "toString": "x"}, None),
    ("V5 of the runtime's own page", {"subtype": "ui_focus", "content": "x"}, None),
    *((f"V5 hidden {name}", {"subtype": name, "content": "x"}, None) for name in METADATA),
]
ROWS: list[Row] = [*V2, *V3, *V4, *V5]
BROKEN: list[Any] = [
    {"subtype": 7, "content": "x"},
    {"subtype": None},
    {},
    {"subtype": "w", "content": ["x"]},
    {"subtype": "api_retry", "attempt": True, "max_retries": 1e300, "retry_delay_ms": 1.5},
]


def event_of(row: Row) -> dict[str, Any]:
    return {"type": "system", **row[1]}
