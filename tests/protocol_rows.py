"""One row for every field of every protocol: its field in the model, and a body that has it.

The tables in `docs/protocols` are generated from these rows. Tests compare them with these rows and
with the codecs' tables. `python tests/protocol_rows.py PROTOCOL` prints the tables of a protocol.
"""

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import weft

PNG = "iVBORw0KGgo="
PROTOCOLS = ("anthropic", "openai-chat", "openai-responses", "gemini")
SCHEMA = {"type": "object", "properties": {}, "additionalProperties": False}
Json = dict[str, Any]


class Row(NamedTuple):
    """A field, the field of the model that holds it, and how to add it to the plain body."""

    field: str
    model_field: str
    change: Callable[[Json], Json]


def member(name: str, value: Any, model_field: str, **beside: Any) -> Row:
    return Row(name, model_field, lambda body: {**body, name: value, **beside})


def inside(outer: str, name: str, value: Any, model_field: str, **beside: Any) -> Row:
    return Row(
        f"{outer}.{name}", model_field, lambda body: {**body, outer: {name: value, **beside}}
    )


def anthropic_block(name: str, block: Json, model_field: str, role: str = "user") -> Row:
    """A block in an Anthropic message; a call is added with its result, and vice versa."""
    content = [{"type": name, **block}]
    pair: list[Json] = [{"role": role, "content": content}]
    if name == "tool_use":
        pair.append({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]})
    if name == "tool_result":
        use = {"type": "tool_use", "id": "c", "name": "f", "input": {}}
        pair.insert(0, {"role": "assistant", "content": [use]})
    return Row(name, model_field, lambda body: {**body, "messages": [*body["messages"], *pair]})


CLAUDE_TOOL = {"name": "f", "input_schema": {"type": "object", "properties": {}}}
ANTHROPIC = (
    member("model", "m", "Request.model"),
    Row("messages", "Request.messages", lambda body: body),
    member("system", "be brief", "Request.messages (first, role system)"),
    member("tools", [CLAUDE_TOOL], "Request.tools"),
    member("cache_control", {"type": "ephemeral"}, "Request.marks"),
    member("max_tokens", 90, "Params.max_tokens"),
    member("temperature", 0.5, "Params.temperature"),
    member("top_p", 0.5, "Params.top_p"),
    member("top_k", 5, "Params.top_k"),
    member("stop_sequences", ["end"], "Params.stop"),
    member("stream", True, "Params.stream"),
    member("tool_choice", {"type": "any"}, "Params.tool_choice", tools=[CLAUDE_TOOL]),
    member("thinking", {"type": "enabled", "budget_tokens": 2048}, "Params.reasoning"),
    member("output_config", {"effort": "low"}, "Params.reasoning, Params.format"),
    member("output_format", {"type": "json_schema", "schema": SCHEMA}, "Params.format"),
    member("metadata", {"user_id": "u"}, "Params.user"),
    member("service_tier", "auto", "Params.service_tier"),
    member("container", "c", "passed through"),
    member(
        "context_management", {"edits": [{"type": "clear_thinking_20251015"}]}, "passed through"
    ),
    member("mcp_servers", [{"type": "url", "url": "https://a", "name": "a"}], "passed through"),
)
ANTHROPIC_BLOCKS = (
    anthropic_block("text", {"text": "hi"}, "Text"),
    anthropic_block(
        "image",
        {"source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        "Image",
    ),
    anthropic_block(
        "document",
        {"source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        "File",
    ),
    anthropic_block("tool_use", {"id": "c", "name": "f", "input": {}}, "ToolCall", "assistant"),
    anthropic_block("tool_result", {"tool_use_id": "c", "content": "ok"}, "ToolResult"),
    anthropic_block("thinking", {"thinking": "hm", "signature": "cw=="}, "Thinking", "assistant"),
    anthropic_block("redacted_thinking", {"data": "cw=="}, "Redacted", "assistant"),
    anthropic_block(
        "server_tool_use", {"id": "s", "name": "web_search", "input": {}}, "passed through"
    ),
)


def chat_part(name: str, part: Any, model_field: str, role: str = "user") -> Row:
    message = {"role": role, "content": [{"type": name, name: part}]}
    return Row(name, model_field, lambda body: {**body, "messages": [*body["messages"], message]})


CHAT_TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
LEGACY_TOOL = {"name": "f", "parameters": SCHEMA}
CHAT = (
    member("model", "m", "Request.model"),
    Row("messages", "Request.messages", lambda body: body),
    member("tools", [CHAT_TOOL], "Request.tools"),
    member("functions", [LEGACY_TOOL], "Request.tools"),
    member("web_search_options", {}, "Request.tools"),
    member("function_call", "auto", "Params.tool_choice", functions=[LEGACY_TOOL]),
    member("tool_choice", "required", "Params.tool_choice", tools=[CHAT_TOOL]),
    member("parallel_tool_calls", False, "Params.parallel_tool_calls", tools=[CHAT_TOOL]),
    member("max_completion_tokens", 90, "Params.max_tokens"),
    member("max_tokens", 90, "Params.max_tokens"),
    member("temperature", 0.5, "Params.temperature"),
    member("top_p", 0.5, "Params.top_p"),
    member("stop", ["end"], "Params.stop"),
    member("seed", 3, "Params.seed"),
    member("n", 2, "Params.n"),
    member("presence_penalty", 0.5, "Params.presence_penalty"),
    member("frequency_penalty", 0.5, "Params.frequency_penalty"),
    member("stream", True, "Params.stream"),
    member("stream_options", {"include_usage": True}, "Request.raw", stream=True),
    member("response_format", {"type": "json_object"}, "Params.format"),
    member("reasoning_effort", "low", "Params.reasoning"),
    member("verbosity", "low", "Params.verbosity"),
    member("service_tier", "auto", "Params.service_tier"),
    member("user", "u", "Params.user"),
    member("metadata", {"a": "b"}, "Params.metadata"),
    member("store", False, "Params.store"),
    member("prompt_cache_key", "k", "Params.prompt_cache_key"),
    member("safety_identifier", "s", "Params.safety_identifier"),
    member("logit_bias", {"5": 1}, "passed through"),
    member("logprobs", True, "passed through"),
    member("prediction", {"type": "content", "content": "a"}, "passed through"),
)
CHAT_PARTS = (
    chat_part("text", "hi", "Text"),
    chat_part("image_url", {"url": f"data:image/png;base64,{PNG}"}, "Image"),
    chat_part("file", {"file_data": "data:application/pdf;base64,JVBERg=="}, "File"),
    chat_part("input_audio", {"data": "AAAA", "format": "wav"}, "Audio"),
    chat_part("refusal", "no", "Refusal", "assistant"),
)


def chat_member(name: str, value: Any, model_field: str, *after: Json) -> Row:
    """A member of an assistant's message."""
    messages = [{"role": "assistant", "content": "hi", name: value}, *after]
    return Row(name, model_field, lambda body: {**body, "messages": [*body["messages"], *messages]})


CHAT_CALL = {"name": "f", "arguments": "{}"}
CHAT_MESSAGES = (
    Row("role", "Message.role", lambda body: body),
    Row("content", "Message.blocks", lambda body: body),
    chat_member(
        "tool_calls",
        [{"id": "c", "type": "function", "function": CHAT_CALL}],
        "ToolCall",
        {"role": "tool", "tool_call_id": "c", "content": "ok"},
    ),
    chat_member(
        "function_call",
        CHAT_CALL,
        "ToolCall",
        {"role": "function", "name": "f", "content": "ok"},
    ),
    chat_member("refusal", "no", "Refusal"),
    chat_member("audio", {"id": "audio_1"}, "Audio"),
    chat_member("reasoning_content", "hm", "Thinking"),
    chat_member("reasoning", "hm", "Thinking"),
    chat_member("reasoning_text", "hm", "Thinking"),
    chat_member("reasoning_opaque", "cw==", "Thinking"),
    chat_member("reasoning_details", [{"type": "reasoning.text", "text": "hm"}], "Thinking"),
)


def item(name: str, fields: Json, model_field: str, before: Any = (), after: Any = ()) -> Row:
    arguments = [*before, {"type": name, **fields}, *after]
    return Row(name, model_field, lambda body: {**body, "input": [*body["input"], *arguments]})


def response_part(name: str, part: Json, model_field: str, role: str = "user") -> Row:
    message = {"role": role, "content": [{"type": name, **part}]}
    return Row(name, model_field, lambda body: {**body, "input": [*body["input"], message]})


RESPONSES_TOOL = {"type": "function", "name": "f", "parameters": SCHEMA, "strict": False}
FUNCTION_CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
CUSTOM_CALL = {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": "a"}
RESPONSES = (
    member("model", "m", "Request.model"),
    Row("input", "Request.messages", lambda body: body),
    member("instructions", "be brief", "Request.messages (first, role system)"),
    member("tools", [RESPONSES_TOOL], "Request.tools"),
    member("tool_choice", "required", "Params.tool_choice", tools=[RESPONSES_TOOL]),
    member("parallel_tool_calls", False, "Params.parallel_tool_calls", tools=[RESPONSES_TOOL]),
    member("max_output_tokens", 99, "Params.max_tokens"),
    member("temperature", 0.5, "Params.temperature"),
    member("top_p", 0.5, "Params.top_p"),
    member("stream", True, "Params.stream"),
    member("text", {"verbosity": "low"}, "Params.format, Params.verbosity"),
    member("reasoning", {"effort": "low"}, "Params.reasoning"),
    member("service_tier", "auto", "Params.service_tier"),
    member("user", "u", "Params.user"),
    member("metadata", {"a": "b"}, "Params.metadata"),
    member("store", False, "Params.store"),
    member("prompt_cache_key", "k", "Params.prompt_cache_key"),
    member("safety_identifier", "s", "Params.safety_identifier"),
    member("include", ["reasoning.encrypted_content"], "passed through"),
    member("truncation", "auto", "passed through"),
    member("background", True, "passed through"),
    member("previous_response_id", "resp_1", "refused elsewhere"),
    member("conversation", "conv_1", "refused elsewhere"),
    member("prompt", {"id": "p"}, "refused elsewhere"),
)
RESPONSES_ITEMS = (
    response_part("input_text", {"text": "hi"}, "Text"),
    response_part("output_text", {"text": "hi", "annotations": []}, "Text", "assistant"),
    response_part("refusal", {"refusal": "no"}, "Refusal", "assistant"),
    response_part("input_image", {"image_url": f"data:image/png;base64,{PNG}"}, "Image"),
    response_part("input_file", {"file_data": "data:application/pdf;base64,JVBERg=="}, "File"),
    item(
        "function_call",
        {key: FUNCTION_CALL[key] for key in ("call_id", "name", "arguments")},
        "ToolCall",
        after=[{"type": "function_call_output", "call_id": "c", "output": "ok"}],
    ),
    item("function_call_output", {"call_id": "c", "output": "ok"}, "ToolResult", [FUNCTION_CALL]),
    item(
        "custom_tool_call",
        {key: CUSTOM_CALL[key] for key in ("call_id", "name", "input")},
        "ToolCall (custom)",
        after=[{"type": "custom_tool_call_output", "call_id": "c", "output": "ok"}],
    ),
    item("custom_tool_call_output", {"call_id": "c", "output": "ok"}, "ToolResult", [CUSTOM_CALL]),
    item("reasoning", {"id": "rs_1", "summary": [], "encrypted_content": "cw=="}, "Thinking"),
    item("compaction", {"encrypted_content": "cw=="}, "passed through"),
    item("item_reference", {"id": "msg_1"}, "refused elsewhere"),
)


def config(name: str, value: Any, model_field: str, **beside: Any) -> Row:
    return inside("generationConfig", name, value, model_field, **beside)


def gemini_part(name: str, part: Any, model_field: str, role: str = "user", *after: Json) -> Row:
    messages = [{"role": role, "parts": [{name: part}]}, *after]
    return Row(name, model_field, lambda body: {**body, "contents": [*body["contents"], *messages]})


def gemini_result() -> Row:
    parts = [{"functionCall": {"name": "f", "args": {}}}]
    answer = [{"functionResponse": {"name": "f", "response": {"output": "ok"}}}]
    messages = [{"role": "model", "parts": parts}, {"role": "user", "parts": answer}]
    return Row(
        "functionResponse",
        "ToolResult",
        lambda body: {**body, "contents": [*body["contents"], *messages]},
    )


GEMINI_TOOLS = [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": SCHEMA}]}]
JSON_ANSWER = {"responseMimeType": "application/json"}
GEMINI = (
    Row("contents", "Request.messages", lambda body: body),
    member(
        "systemInstruction",
        {"role": "user", "parts": [{"text": "be brief"}]},
        "Request.messages (first, role system)",
    ),
    member("tools", GEMINI_TOOLS, "Request.tools"),
    member(
        "toolConfig",
        {"functionCallingConfig": {"mode": "ANY"}},
        "Params.tool_choice",
        tools=GEMINI_TOOLS,
    ),
    config("temperature", 0.5, "Params.temperature"),
    config("topP", 0.5, "Params.top_p"),
    config("topK", 5, "Params.top_k"),
    config("maxOutputTokens", 90, "Params.max_tokens"),
    config("candidateCount", 2, "Params.n"),
    config("seed", 3, "Params.seed"),
    config("presencePenalty", 0.5, "Params.presence_penalty"),
    config("frequencyPenalty", 0.5, "Params.frequency_penalty"),
    config("stopSequences", ["end"], "Params.stop"),
    config("thinkingConfig", {"thinkingBudget": 2048}, "Params.reasoning"),
    config("responseMimeType", "application/json", "Params.format"),
    config("responseSchema", {"type": "OBJECT"}, "Params.format", **JSON_ANSWER),
    config("responseJsonSchema", SCHEMA, "Params.format", **JSON_ANSWER),
    config("responseModalities", ["IMAGE"], "passed through"),
    config("speechConfig", {"languageCode": "en"}, "passed through"),
    member(
        "safetySettings",
        [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
        "passed through",
    ),
    member("cachedContent", "cachedContents/a", "refused elsewhere"),
)
GEMINI_PARTS = (
    gemini_part("text", "hi", "Text, Thinking"),
    gemini_part("inlineData", {"mimeType": "image/png", "data": PNG}, "Image, Audio, File"),
    gemini_part(
        "fileData",
        {"mimeType": "image/png", "fileUri": "https://a/b.png"},
        "Image, Audio, File",
    ),
    gemini_part(
        "functionCall",
        {"name": "f", "args": {}},
        "ToolCall",
        "model",
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ),
    gemini_result(),
    gemini_part("executableCode", {"language": "PYTHON", "code": "1"}, "passed through", "model"),
    gemini_part(
        "codeExecutionResult", {"outcome": "OUTCOME_OK", "output": "1"}, "passed through", "model"
    ),
)

ROWS = {
    "anthropic": {"Request": ANTHROPIC, "Blocks": ANTHROPIC_BLOCKS},
    "openai-chat": {"Request": CHAT, "Messages": CHAT_MESSAGES, "Parts": CHAT_PARTS},
    "openai-responses": {"Request": RESPONSES, "Parts and items": RESPONSES_ITEMS},
    "gemini": {"Request": GEMINI, "Parts": GEMINI_PARTS},
}
HI = [{"role": "user", "content": "hi"}]
PLAIN: dict[str, Json] = {
    "anthropic": {"model": "m", "max_tokens": 50, "messages": HI},
    "openai-chat": {"model": "m", "messages": HI},
    "openai-responses": {"model": "m", "input": HI},
    "gemini": {"contents": [{"role": "user", "parts": [{"text": "hi"}]}]},
}


def fate(row: Row, source: str, target: str) -> str:
    """How a field is translated: `kept`, `form`, `lost` or `refused`."""
    model = "m" if source == "gemini" else None
    try:
        done = weft.translate(row.change(PLAIN[source]), source, target, model=model)
    except weft.Refused:
        return "refused"
    usual = {(loss.path, loss.code, loss.detail) for loss in _plain_losses(source, target, model)}
    levels = {
        loss.level for loss in done.losses if (loss.path, loss.code, loss.detail) not in usual
    }
    return "lost" if {*levels} - {"form"} else "form" if levels else "kept"


def _plain_losses(source: str, target: str, model: str | None) -> list[weft.Loss]:
    return weft.translate(PLAIN[source], source, target, model=model).losses


def table(protocol: str, title: str) -> list[list[str]]:
    """The table of a protocol's fields: its head and its rows."""
    targets = [target for target in PROTOCOLS if target != protocol]
    head = ["field", "model field", *targets]
    return [head] + [
        [f"`{row.field}`", row.model_field, *(fate(row, protocol, target) for target in targets)]
        for row in ROWS[protocol][title]
    ]


def written(protocol: str, title: str) -> str:
    """A table in markdown."""
    head, *rows = table(protocol, title)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


if __name__ == "__main__":
    for name in ROWS[sys.argv[1]]:
        print(f"## {name}\n\n{written(sys.argv[1], name)}\n")
