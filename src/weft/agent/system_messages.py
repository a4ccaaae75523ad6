"""Which system messages a person sees, and with which text.

An agent's runtime sends more system messages than anyone wants to read: every turn lists all tools,
every request its status. `RULES` has a rule for each subtype. A rule is a list of templates. The
first template whose conditions hold, and whose fields all have a value, gives the text. If there is
none, the message is hidden.

    {content}                      a field that is a string and not blank, or a whole number
    {compact_metadata.pre_tokens}  a field inside an object

Rules are data, so that the server, the terminal and the page share them: the page fetches
`table_json()` and runs the same filter in `web/system.js`. A test gives both the same rows.
Subtypes are those of Claude Code's stream (https://docs.claude.com/en/api/agent-sdk). Other
subtypes follow `OTHER`, or `COMPACTION` if the name contains "compact".
"""

import re
from collections.abc import Mapping
from typing import Any, Literal, cast

from msgspec import Struct, field, to_builtins

from weft.model import JsonObject

Kind = Literal["compaction", "info"]


class KindStyle(Struct, frozen=True):
    """How messages of a kind are displayed; `tone` is the name of their colour."""

    icon: str
    title: str
    tone: str


class Template(Struct, frozen=True, omit_defaults=True):
    """A text with fields, which applies if each field in `where` has the value there."""

    text: str
    kind: Kind
    where: Mapping[str, str] = field(default_factory=dict[str, str])


Rule = tuple[Template, ...]
"""The templates of a subtype, tried in this order."""


class DisplayedMessage(Struct, frozen=True):
    """A system message for display; `text` is untrusted markdown."""

    subtype: str
    kind: Kind
    icon: str
    text: str


KIND_STYLES: dict[Kind, KindStyle] = {
    "compaction": KindStyle("⚡", "Context", "yellow"),
    "info": KindStyle("ℹ️", "System", "blue"),
}


def _templates(kind: Kind, *texts: str, **where: str) -> Rule:
    """Templates that all have the same conditions."""
    return tuple(Template(text, kind, where) for text in texts)


OTHER = _templates("info", "{content}", "{message}", "{text}")
COMPACTION = _templates(
    "compaction",
    "{content}",
    "{message}",
    "{text}",
    "⚡ **Compaction**\n\nOlder parts of the conversation are being summarised.",
)
HIDDEN: Rule = ()


def _info_then_other(*texts: str) -> Rule:
    """These templates first, then those of `OTHER`."""
    return (*_templates("info", *texts), *OTHER)


_STARTED = (
    "⚡ **Auto-Compaction Started**\n\nThe conversation is getting long, so its older parts are "
    "being folded into a summary. Pinned messages and the latest turns stay as they are."
)
_TOKENS = "{compact_metadata.pre_tokens} → {compact_metadata.post_tokens} tokens"
_METHOD = "{compact_metadata.method}: {compact_metadata.reason}"

SHOWN_SUBTYPES: dict[str, Rule] = {
    "compaction_start": _templates("compaction", _STARTED),
    "compact_boundary": _templates(
        "compaction",
        f"⚡ **Compacted** ({{compact_metadata.trigger}}): {_TOKENS}, by {_METHOD}",
        f"⚡ **Compacted** ({{compact_metadata.trigger}}): {_TOKENS}",
        f"⚡ **Compacted**: {_TOKENS}",
        "⚡ **Compacted**: {compact_metadata.pre_tokens} tokens before",
        "⚡ **Compacted**",
    ),
    "status": (
        *_templates(
            "compaction",
            "⚡ **Compacting**\n\nOlder turns are being folded into a summary …",
            status="compacting",
        ),
        *_templates(
            "compaction",
            "⚡ **Compaction failed**: {compact_error}",
            "⚡ **Compaction failed**",
            compact_result="failed",
        ),
        *OTHER,
    ),
    "informational": OTHER,
    "notification": OTHER,
    "losses": _templates("info", "{content}"),
    "local_command_output": OTHER,
    "api_retry": _info_then_other(
        "{error_status} from {upstream} ({error}); retry {attempt} of {max_retries} in {delay}",
        "{upstream} cannot be reached ({error}); retry {attempt} of {max_retries} in {delay}",
        "The model's server said {error_status} ({error}). Attempt {attempt} of {max_retries}, "
        "again in {retry_delay_ms} ms.",
        "The model's server did not answer. Attempt {attempt} of {max_retries}, again in "
        "{retry_delay_ms} ms.",
        "{content}",
    ),
    "api_error": _info_then_other(
        "The model's server failed: {error}", "The model's server failed: {cause}"
    ),
    "model_fallback": _info_then_other(
        "{content}",
        "{message}",
        "{original_model} could not answer; {fallback_model} does.",
        "{from_model} could not answer; {to_model} does.",
    ),
    "model_refusal_fallback": _info_then_other(
        "{content}", "{original_model} declined; {fallback_model} answers instead."
    ),
    "model_refusal_no_fallback": _info_then_other(
        "{content}", "{original_model} declined to answer."
    ),
    "model_consent_fallback": _info_then_other(
        "{content}", "{fallback_model} answers instead of {original_model}."
    ),
    "permission_denied": _info_then_other(
        "**{tool_name}** was not allowed: {decision_reason}",
        "**{tool_name}** was not allowed: {message}",
        "{content}",
        "{message}",
        "**{tool_name}** was not allowed.",
    ),
    "task_notification": _info_then_other("Task {status}: {summary}", "{summary}"),
    "instruction_size_warning": OTHER,
    "file_attachments_missing": OTHER,
    "agents_killed": OTHER,
    "session_writes_lost": _info_then_other("{error}", "{reason}"),
    "mirror_error": _info_then_other("The transcript could not be mirrored: {error}"),
    "scheduled_task_fire": OTHER,
    "worker_shutting_down": _info_then_other("The worker is shutting down: {reason}"),
}

HIDDEN_SUBTYPES = (
    *("init", "session_metadata", "session_state_changed", "session_title_changed"),
    *("thinking", "thinking_tokens", "hook_started", "hook_progress", "hook_response"),
    *("stop_hook_summary", "memory_saved", "memory_recall", "turn_duration", "turn_preempted"),
    *("turn_handoff_available", "post_turn_summary", "away_summary", "task_started"),
    *("task_progress", "task_updated", "task_summary", "background_tasks_changed"),
    *("permission_retry", "permission_check_status", "commands_changed", "files_persisted"),
    *("file_snapshot", "plugin_install", "elicitation_complete", "vcs_state_changed"),
    *("code_change_published", "per_turn_effort_changed"),
)
RULES: dict[str, Rule] = {**SHOWN_SUBTYPES, **dict.fromkeys(HIDDEN_SUBTYPES, HIDDEN)}

HIDDEN_PREFIX = "ui_"
"""Events between a runtime and its own user interface."""

COMPACTION_WORD = "compact"

_FIELD = re.compile(r"\{([a-z_.]+)\}")
_BLANK = (
    "\t\n\v\f\r \u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""The whitespace of JavaScript's `trim`, which differs from Python's `strip`."""
_MAX_SAFE_INTEGER = 2**53 - 1


def display_system_message(event: JsonObject) -> DisplayedMessage | None:
    """The text of a system event for display, or `None` if it is hidden.

    It never raises, whatever the event contains.
    """
    subtype = event.get("subtype")
    if event.get("type") != "system" or not isinstance(subtype, str):
        return None
    for template in _find_rule(subtype):
        text = _fill(template, event)
        if text is not None:
            return DisplayedMessage(subtype, template.kind, KIND_STYLES[template.kind].icon, text)
    return None


def _find_rule(subtype: str) -> Rule:
    """The rule for a subtype in any case: its own, or one for all subtypes that are not listed."""
    name = subtype.lower()
    if name in RULES:
        return RULES[name]
    if COMPACTION_WORD in name:
        return COMPACTION
    return HIDDEN if name.startswith(HIDDEN_PREFIX) else OTHER


def skip_note(subtype: str) -> str:
    """The text that the page logs for a hidden message."""
    return f'⏩ Skipping "{subtype}" system message (metadata only)'


def table_json() -> JsonObject:
    """The rules as data, for the page's own copy of `display_system_message`."""
    table: JsonObject = to_builtins(
        {
            "rules": RULES,
            "compaction": COMPACTION,
            "compaction_word": COMPACTION_WORD,
            "hidden": HIDDEN,
            "hidden_prefix": HIDDEN_PREFIX,
            "other": OTHER,
            "looks": KIND_STYLES,
        }
    )
    return table


def _fill(template: Template, event: JsonObject) -> str | None:
    """The template filled from the event; `None` if a field or a condition fails."""
    if any(_look_up(event, path) != value for path, value in template.where.items()):
        return None
    values = {path: _field_text(_look_up(event, path)) for path in _FIELD.findall(template.text)}
    if None in values.values():
        return None
    only_field = _FIELD.fullmatch(template.text)
    if only_field is not None and not isinstance(_look_up(event, only_field[1]), str):
        return None  # a number alone is not a message
    return _FIELD.sub(lambda match: values[match[1]] or "", template.text)


def _look_up(event: JsonObject, path: str) -> Any:
    value: Any = event
    for key in path.split("."):
        value = cast(JsonObject, value).get(key) if isinstance(value, dict) else None
    return value


def _field_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value if value.strip(_BLANK) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return str(int(value)) if abs(value) <= _MAX_SAFE_INTEGER and value == int(value) else None
