"""Losses: values that report what a translation dropped, changed, added or moved.

Nothing is dropped silently.

A `Loss` has a stable `code`. The table `LOSS_CODES` says what each code means: its kind, its usual
level, and the text for people. `docs/reference/losses.md` lists the same table.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

Level = Literal["content", "meaning", "form"]
"""How much a loss matters, the most important level first.

- `content`: a part of the conversation is gone.
- `meaning`: the model or the user could notice.
- `form`: spelling, null or absent, a default, client metadata, display settings.
"""
LossKind = Literal["dropped", "changed", "added", "moved"]


class LossCode(Struct, frozen=True, gc=False):
    """The meaning of a code. `{detail}` in `what` is replaced with the detail of the loss."""

    kind: LossKind
    level: Level
    what: str
    why: str


class Loss(Struct, frozen=True, gc=False):
    """One thing that a translation dropped, changed, added or moved.

    `path` is the position in the caller's body (`messages[2].content[0]`). `detail` is the value or
    name concerned, or `old -> new` if the new value is known. `level` is explained at `Level`.
    """

    code: str
    kind: LossKind
    path: str
    detail: str = ""
    level: Level = "meaning"

    @property
    def what(self) -> str:
        """What the loss affects, as text for people: `parameter top_k`."""
        entry = LOSS_CODES.get(self.code)
        return self.detail or self.code if entry is None else _with_detail(entry.what, self.detail)

    @property
    def why(self) -> str:
        """The reason, as text for people."""
        entry = LOSS_CODES.get(self.code)
        return "" if entry is None else entry.why

    @property
    def message(self) -> str:
        """The loss as one sentence without its path."""
        reason = self.why
        return f"{self.kind} {self.what}" + (f" ({reason})" if reason else "")

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def make_loss(code: str, path: str, detail: object = "", level: Level | None = None) -> Loss:
    """A loss of a known code; without `level` it has the level that is usual for the code."""
    entry = LOSS_CODES[code]
    return Loss(code, entry.kind, path, str(detail), level or entry.level)


def loss_json(loss: Loss) -> dict[str, str]:
    """A loss as JSON output shows it."""
    return {
        "path": loss.path,
        "what": loss.what,
        "why": loss.why,
        "code": loss.code,
        "kind": loss.kind,
        "detail": loss.detail,
        "level": loss.level,
    }


_RANKS: dict[Level, int] = {"content": 0, "meaning": 1, "form": 2}


def by_importance(losses: Iterable[Loss]) -> list[Loss]:
    """The losses with the most important level first; within a level the order stays."""
    return sorted(losses, key=lambda loss: _RANKS[loss.level])


SHOWN_PATHS = 3
"""How many paths of a group a line names; the rest are only counted."""


def loss_lines(losses: Iterable[Loss]) -> list[str]:
    """The losses as readable lines: equal losses are one line, and the most important come first.

    A long session repeats the same few losses in every message.
    """
    groups: dict[tuple[Level, str], list[str]] = {}
    for loss in losses:
        groups.setdefault((loss.level, loss.message), []).append(loss.path)
    ordered = sorted(groups.items(), key=lambda group: _RANKS[group[0][0]])
    return [_group_line(level, message, paths) for (level, message), paths in ordered]


def _group_line(level: Level, message: str, paths: list[str]) -> str:
    if len(paths) == 1:
        return f"{level}: {paths[0]}: {message}"
    distinct = list(dict.fromkeys(paths))
    more = f" and {len(distinct) - SHOWN_PATHS} more" if len(distinct) > SHOWN_PATHS else ""
    shown_paths = ", ".join(distinct[:SHOWN_PATHS]) + more
    return f"{level}: {len(paths)} times {message}: {shown_paths}"


def _with_detail(text: str, detail: str) -> str:
    # A caller's name may contain control characters, which a terminal would interpret.
    printable = detail if detail.isprintable() else repr(detail)
    return text.replace("{detail}", printable).strip()


LOSS_CODES: dict[str, LossCode] = {
    # Parameters
    "param_dropped": LossCode(
        "dropped", "meaning", "parameter {detail}", "the target has no such parameter"
    ),
    "param_renamed": LossCode(
        "changed",
        "form",
        "parameter name {detail}",
        "the target server does not know the original name",
    ),
    "null_member_dropped": LossCode(
        "dropped", "form", "member {detail}", "the target leaves out members without a value"
    ),
    "member_dropped": LossCode(
        "dropped", "meaning", "member {detail}", "the target has no counterpart"
    ),
    "form_changed": LossCode(
        "changed", "form", "spelling of {detail}", "the target writes it differently"
    ),
    "stream_in_path": LossCode(
        "moved", "form", "parameter stream", "the target's URL says whether to stream"
    ),
    "service_tier_dropped": LossCode(
        "dropped", "meaning", "service tier {detail}", "the target does not know this tier"
    ),
    "max_tokens_raised": LossCode(
        "changed", "meaning", "max_tokens {detail}", "the target refuses a smaller limit"
    ),
    "temperature_clamped": LossCode(
        "changed", "meaning", "temperature {detail}", "it is outside the target's range"
    ),
    "sampling_unsupported": LossCode(
        "dropped", "meaning", "{detail}", "the model does not accept this sampling parameter"
    ),
    "sampling_excluded_by_thinking": LossCode(
        "dropped", "meaning", "{detail}", "the target refuses it together with thinking"
    ),
    "seed_dropped": LossCode(
        "dropped", "meaning", "seed {detail}", "it is outside the target's range"
    ),
    "user_shortened": LossCode(
        "changed",
        "form",
        "user {detail}",
        "it is longer than the target allows, so it is truncated and a digest is appended",
    ),
    "stop_sequences_dropped": LossCode(
        "dropped",
        "meaning",
        "{detail} of the stop sequences",
        "the target limits their number or refuses blank ones, or the model accepts none",
    ),
    # Defaults that the target requires
    "default_added": LossCode("added", "form", "{detail}", "the target requires a value"),
    # Response format
    "format_unsupported": LossCode(
        "dropped", "meaning", "response format {detail}", "the target only accepts a JSON schema"
    ),
    "format_member_dropped": LossCode(
        "dropped",
        "form",
        "{detail} of the response schema",
        "the target's schemas have no such member",
    ),
    "format_as_json": LossCode(
        "changed",
        "form",
        "response format without a schema, now any JSON",
        "the target requires a schema",
    ),
    "format_as_schema": LossCode(
        "changed",
        "form",
        'response format "any JSON", now the schema of an object',
        'for "any JSON", the model requires the word JSON in the conversation',
    ),
    "format_excluded_by_tools": LossCode(
        "dropped", "meaning", "response format", "the model cannot combine JSON output with tools"
    ),
    "schema_keyword_dropped": LossCode(
        "dropped", "meaning", "schema keyword {detail}", "the target does not accept it"
    ),
    # Thinking
    "effort_unsupported": LossCode(
        "dropped", "meaning", "effort {detail}", "the model does not accept it"
    ),
    "effort_changed": LossCode(
        "changed", "meaning", "effort {detail}", "the model only accepts other levels"
    ),
    "effort_as_budget": LossCode(
        "changed",
        "form",
        "effort {detail}, now a thinking budget",
        "the model takes a number of thinking tokens, not an effort level",
    ),
    "effort_overridden": LossCode(
        "dropped", "meaning", "effort {detail}", "another thinking setting excludes it"
    ),
    "effort_added": LossCode("added", "form", "effort {detail}", "it replaces the thinking budget"),
    "thinking_budget_as_effort": LossCode(
        "changed",
        "meaning",
        "thinking budget {detail}",
        "the model takes an effort level, not a number of thinking tokens",
    ),
    "thinking_budget_changed": LossCode(
        "changed", "meaning", "thinking budget {detail}", "it is outside the model's range"
    ),
    "thinking_budget_dropped": LossCode(
        "dropped",
        "meaning",
        "thinking budget {detail}",
        "the model takes no budget, an effort replaces it, or max_tokens leaves no room for it",
    ),
    "thinking_mode_dropped": LossCode(
        "dropped", "meaning", "thinking mode {detail}", "the target or the model has no such mode"
    ),
    "thinking_excluded_by_tool_choice": LossCode(
        "dropped", "meaning", "thinking", "the target refuses it together with a forced tool call"
    ),
    "thinking_not_disabled": LossCode(
        "dropped",
        "meaning",
        "the request to turn thinking off",
        "the target has no such setting for this model, or the request also sets an effort",
    ),
    "thinking_summary_dropped": LossCode(
        "dropped",
        "form",
        "the request for a {detail} thinking summary",
        "the target decides what it shows",
    ),
    "reasoning_unsupported": LossCode(
        "dropped", "meaning", "thinking setting {detail}", "the model does not think"
    ),
    # Tools
    "tool_unsupported": LossCode(
        "dropped", "meaning", "tool {detail}", "the target has no such kind of tool"
    ),
    "tool_not_allowed": LossCode(
        "dropped",
        "meaning",
        "tool {detail}",
        "tool_choice excludes it, and the target cannot express that",
    ),
    "tool_member_dropped": LossCode(
        "dropped", "meaning", "member {detail}", "the target's tool definitions have no such member"
    ),
    "tool_strict_dropped": LossCode(
        "dropped", "form", "strict {detail}", "the target's tool definitions have no such member"
    ),
    "tool_name_changed": LossCode(
        "changed", "form", "tool name {detail}", "the target refuses the original name"
    ),
    "tool_choice_dropped": LossCode(
        "dropped", "meaning", "tool choice {detail}", "no such tool is offered to the target"
    ),
    "tool_choice_changed": LossCode(
        "changed", "form", "tool choice {detail}", "the tool has another name for the target"
    ),
    "tool_choice_narrowed": LossCode(
        "changed", "form", "list of allowed tools", "only these tools are offered to the target"
    ),
    "tool_setting_dropped": LossCode(
        "dropped", "form", "parameter {detail}", "the request has no tools for the target"
    ),
    "parallel_calls_dropped": LossCode(
        "dropped", "form", "parallel_tool_calls {detail}", "it is the target's default"
    ),
    "namespace_flattened": LossCode(
        "changed", "form", "namespace {detail}", "the target's tool names have no namespaces"
    ),
    "namespace_description_dropped": LossCode(
        "dropped",
        "meaning",
        "description of the namespace {detail}",
        "the target's tool names have no namespaces",
    ),
    "custom_tool_as_function": LossCode(
        "changed", "form", "custom tool {detail}, now a function", "the target has no custom tools"
    ),
    "custom_call_as_function": LossCode(
        "changed",
        "form",
        "custom tool call {detail}, now a function call",
        "the target has no custom tools",
    ),
    "custom_result_as_function": LossCode(
        "changed",
        "form",
        "custom tool result, now a function result",
        "the target has no custom tools",
    ),
    "web_search_excluded_by_tools": LossCode(
        "dropped", "meaning", "web search", "the target cannot combine it with functions"
    ),
    "web_search_member_dropped": LossCode(
        "dropped",
        "meaning",
        "web search member {detail}",
        "the target's web search has no such member",
    ),
    "web_search_version_changed": LossCode(
        "changed", "form", "web search version {detail}", "the target has its own version"
    ),
    # Tool calls and results
    "arguments_wrapped": LossCode(
        "changed", "meaning", 'tool arguments, now {"_raw": ...}', "the text is not a JSON object"
    ),
    "number_rounded": LossCode(
        "changed",
        "meaning",
        "number {detail}",
        "the body is a dict, and a float has fewer digits; bytes keep all of them",
    ),
    "empty_arguments_added": LossCode(
        "added", "form", "empty tool arguments", "the target requires an object"
    ),
    "call_id_changed": LossCode(
        "changed",
        "form",
        "call id {detail}",
        "the target refuses the original id, or another call has it",
    ),
    "item_id_dropped": LossCode(
        "dropped", "form", "item id {detail}", "the thinking that the item belongs to is not sent"
    ),
    "result_added": LossCode("added", "meaning", "an error result", "the call has no result"),
    "result_superseded": LossCode(
        "changed", "meaning", "tool result, now text", "a later result answers the same call"
    ),
    "orphan_result_as_text": LossCode(
        "changed", "meaning", "tool result, now text", "its call is not in the conversation"
    ),
    "error_flag_dropped": LossCode(
        "dropped", "form", "is_error {detail}", "the target's tool results have no such flag"
    ),
    "result_name_dropped": LossCode(
        "dropped",
        "form",
        "name {detail} of a tool result",
        "the target's tool results have no name",
    ),
    "results_reordered": LossCode(
        "moved", "form", "tool results", "the target requires the order of the calls"
    ),
    "result_before_text": LossCode(
        "moved", "form", "tool result", "the target requires results before text"
    ),
    "beside_results_moved": LossCode(
        "moved",
        "form",
        "content beside tool results",
        "the target allows nothing beside tool results",
    ),
    "result_media_moved": LossCode(
        "moved",
        "form",
        "{detail} inside a tool result, now after it",
        "the target's tool results hold text only",
    ),
    "text_after_call_moved": LossCode(
        "moved", "meaning", "text after a tool call", "the target's tool calls come last"
    ),
    # Messages and roles
    "role_changed": LossCode(
        "changed", "form", "role {detail}", "the target has no such role at this position"
    ),
    "role_unsupported": LossCode(
        "changed", "meaning", "role {detail}", "the target has no such role"
    ),
    "tool_role_without_result": LossCode(
        "changed", "meaning", "role {detail}", "the message answers no call"
    ),
    "system_demoted_by_policy": LossCode(
        "changed", "meaning", "role {detail}", "the caller's policy demotes later system messages"
    ),
    "system_demoted_for_protocol": LossCode(
        "changed",
        "meaning",
        "role {detail}",
        "the target accepts system messages only at the start",
    ),
    "system_demoted_for_model": LossCode(
        "changed",
        "meaning",
        "role {detail}",
        "the model accepts system messages only at the start",
    ),
    "system_demoted_by_position": LossCode(
        "changed",
        "meaning",
        "role {detail}",
        "it must follow a user message, and precede an assistant message or come last",
    ),
    "system_merged": LossCode(
        "moved",
        "form",
        "{detail} message",
        "the caller's policy merges system messages at the start",
    ),
    "system_to_start": LossCode(
        "moved",
        "form",
        "system message",
        "the target keeps system messages before the conversation",
    ),
    "system_after_results": LossCode(
        "moved", "form", "{detail} message", "it was between a call and its result"
    ),
    "participant_name_changed": LossCode(
        "changed", "form", "participant name {detail}", "the target refuses the original name"
    ),
    "participant_name_dropped": LossCode(
        "dropped", "form", "participant name {detail}", "the target's messages have no name"
    ),
    "no_user_message": LossCode(
        "changed",
        "meaning",
        "conversation without a user or assistant message, now an empty list",
        "the target requires a user message, and refuses an empty list",
    ),
    "turn_added": LossCode(
        "added",
        "meaning",
        "the message {detail}",
        "the target requires a user message at this position",
    ),
    "empty_message_dropped": LossCode(
        "dropped", "form", "empty {detail} message", "it has no content"
    ),
    "empty_message_filled": LossCode(
        "changed", "meaning", "empty message, now {detail}", "the target refuses empty messages"
    ),
    "empty_text_dropped": LossCode(
        "dropped", "form", "empty text", "the target refuses empty text"
    ),
    "message_dropped": LossCode(
        "dropped", "form", "{detail} message", "none of its content can be sent"
    ),
    "trailing_space_dropped": LossCode(
        "dropped", "form", "whitespace at the end", "the target refuses it in an unfinished turn"
    ),
    "billing_line_dropped": LossCode(
        "dropped", "form", "Claude Code's billing block", "it is meant for its own vendor only"
    ),
    "message_boundary_dropped": LossCode(
        "changed",
        "form",
        "boundary between this message and the previous one",
        "the target joins the two messages",
    ),
    "message_split": LossCode(
        "changed",
        "form",
        "message with several texts",
        "the target makes each text a message of its own",
    ),
    "text_boundary_dropped": LossCode(
        "changed", "form", "boundaries between {detail}", "the target joins them"
    ),
    "string_as_list": LossCode(
        "changed", "form", "string content, now a list", "the target requires a list"
    ),
    "list_as_string": LossCode(
        "changed", "form", "list content, now a string", "the target requires a string"
    ),
    "missing_content_added": LossCode(
        "added", "form", "an empty list of content", "the target requires a list"
    ),
    # Content blocks
    "block_unsupported": LossCode(
        "dropped", "content", "{detail} block", "the target cannot express it at this position"
    ),
    "block_on_wrong_side": LossCode(
        "dropped",
        "content",
        "{detail} block",
        "tool calls belong in assistant messages, and tool results in user or tool messages",
    ),
    "vendor_block_dropped": LossCode(
        "dropped", "content", "{detail} block", "only its own protocol has it"
    ),
    "vendor_block_as_text": LossCode(
        "changed", "meaning", "{detail} block, now its text", "only its own protocol has it"
    ),
    "vendor_event_dropped": LossCode(
        "dropped", "form", "{detail} event", "only its own protocol has it"
    ),
    "thinking_of_another_model": LossCode(
        "dropped",
        "meaning",
        "{detail} block",
        "thinking is not sent to another provider, or to a model of another maker",
    ),
    "thinking_not_sealed": LossCode(
        "dropped",
        "meaning",
        "{detail} block",
        "it has no encrypted content, only an id, and the vendor does not store it",
    ),
    "thinking_stale": LossCode(
        "dropped", "meaning", "thinking", "the messages before it have changed since it was signed"
    ),
    "thinking_hidden": LossCode(
        "dropped", "meaning", "{detail} block", 'the setting "thinking" is "hidden"'
    ),
    "redacted_thinking_dropped": LossCode(
        "dropped", "meaning", "{detail} block", "the target has no encrypted thinking"
    ),
    "redacted_as_reasoning": LossCode(
        "changed",
        "form",
        "redacted thinking, now a reasoning item without a summary",
        "the target has no redacted thinking",
    ),
    "thinking_signature_dropped": LossCode(
        "dropped",
        "form",
        "signature of thinking",
        "it is only valid for the model that produced it",
    ),
    "empty_thinking_dropped": LossCode("dropped", "form", "thinking block", "it has no text"),
    "refusal_as_text": LossCode(
        "changed", "form", "refusal, now text", "the target has no refusals at this position"
    ),
    "cache_breakpoint_dropped": LossCode(
        "dropped", "form", "cache breakpoint", "the target has no breakpoint at this position"
    ),
    "media_in_assistant": LossCode(
        "dropped", "content", "{detail} block", "the target's assistant messages hold text only"
    ),
    "media_type_unsupported": LossCode(
        "dropped", "content", "{detail} block", "the target does not accept this media type"
    ),
    "media_type_changed": LossCode(
        "changed", "form", "media type {detail}", "the target spells it differently"
    ),
    "media_type_dropped": LossCode(
        "dropped", "form", "media type {detail}", "the target derives it from the URL"
    ),
    "media_type_missing": LossCode(
        "dropped",
        "meaning",
        "the information that the URL is {detail}",
        "the target needs a media type, and the URL's extension does not show one",
    ),
    "image_detail_dropped": LossCode(
        "dropped",
        "form",
        "image setting detail: {detail}",
        "the target's images have no such setting",
    ),
    "document_as_text": LossCode(
        "changed", "form", "document, now its text", "the target only accepts PDF files"
    ),
    "file_id_of_another_vendor": LossCode(
        "dropped",
        "content",
        "{detail} block",
        "a file id is only valid for the vendor that stored the file",
    ),
    "file_id_unsupported": LossCode(
        "dropped",
        "content",
        "{detail} block",
        "the target does not accept a file id at this position",
    ),
    "url_unsupported": LossCode(
        "dropped", "content", "{detail} block", "the target does not fetch this URL"
    ),
    "audio_unsupported": LossCode(
        "dropped", "content", "{detail} block", "the target has no audio"
    ),
    # Answers
    "stop_reason_changed": LossCode(
        "changed", "meaning", "stop reason {detail}", "the target has no such stop reason"
    ),
    "stop_reason_added": LossCode("added", "form", "stop reason", "the target requires one"),
    "stop_detail_dropped": LossCode(
        "dropped", "form", "{detail} of the stop reason", "the target has no field for it"
    ),
    "alternative_dropped": LossCode(
        "dropped", "meaning", "answer {detail}", "the client's protocol has one answer per request"
    ),
    # Repairs of an upstream's answer
    "missing_value_added": LossCode("added", "form", "{detail}", "the upstream left it out"),
    "value_retyped": LossCode("changed", "form", "{detail}", "the upstream sent another JSON type"),
    "null_value_dropped": LossCode("dropped", "form", "{detail}", "the upstream sent null"),
}
"""Every code, in groups: its kind, its usual level, what is concerned, and why."""
