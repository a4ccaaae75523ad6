"""Constants of OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat

Many servers implement variants of this protocol. Unknown members are kept. Members with a known
meaning (reasoning has three names) become model fields, and are written back under their original
name.
"""

import re

from weft.model import ErrorKind, StopKind

PROTOCOL = "openai-chat"

COMPLETION_OBJECT = "chat.completion"
CHUNK_OBJECT = "chat.completion.chunk"
"""The values of the member `object`: of a complete answer, and of each chunk of a stream."""

DECODED_MEMBERS = frozenset({"model", "messages"})
"""Members that `Request.raw` does not keep, because they are decoded completely. A `tools` list
with items is not kept either: each `Tool` keeps its own definition. An empty list is kept."""

MAX_CALL_ID_LENGTH = 40
"""Longer call ids are refused ("string too long")."""

# OpenAI's rule for the `name` of a message, which is the name of a participant: "Expected a string
# that matches the pattern '^[^\s<|\\/>]+$'", at most 64 characters
# (https://community.openai.com/t/invalid-messages-name/950286).
MAX_PARTICIPANT_NAME_LENGTH = 64
INVALID_PARTICIPANT_NAME_CHARACTER = re.compile(r"[\s<|\\/>]")

SOURCE_MEMBER = "item"
"""If it is not clear from a block which member it was decoded from, the block's `ext` has the name
of that member under this key. The key is part of the stored format."""

THINKING_MEMBERS = (
    "reasoning_content",  # DeepSeek
    "reasoning",  # OpenRouter, Groq
    "reasoning_text",  # Copilot
)
"""The members in which servers send thinking. Weft writes the first one by default."""

HIDDEN = "hidden"
"""The value of `ThinkingMember` for clients that get no thinking."""

REASONING_SIGNATURE = "reasoning_opaque"
"""The member for the signature of thinking: Copilot."""

REASONING_DETAILS = "reasoning_details"
"""The member for thinking in pieces, with signatures: OpenRouter."""

STOP_KINDS: dict[str, StopKind] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
    "content_filter": "filter",
    "model_length": "length",  # Mistral: https://docs.mistral.ai/api/#tag/chat
    # Proxies that pass Anthropic's reasons on
    "end_turn": "end",
    "max_tokens": "length",
    "tool_use": "tool",
}
"""The stop kind of each `finish_reason`."""

STOP_REASON_BY_KIND: dict[StopKind, str] = {
    "end": "stop",
    "length": "length",
    "tool": "tool_calls",
    "sequence": "stop",
    "refusal": "content_filter",
    "filter": "content_filter",
    "pause": "stop",
    "context": "length",
    "other": "stop",
}
"""The `finish_reason` for each stop kind."""

FAILED_STOPS: dict[str, ErrorKind] = {
    # vLLM: https://github.com/vllm-project/vllm/issues/57082
    # SGLang: https://github.com/sgl-project/sglang/pull/6693
    "abort": "server",
    # OpenRouter: https://openrouter.ai/docs/api-reference/overview#finish-reason
    # Mistral: https://docs.mistral.ai/api/#tag/chat
    "error": "server",
    # DeepSeek: https://api-docs.deepseek.com/api/create-chat-completion
    "insufficient_system_resource": "overloaded",
    # GLM: https://docs.z.ai/api-reference/llm/chat-completion
    "network_error": "server",
}
"""Finish reasons that mean a failure."""

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
"""The `format` of an `input_audio` part, by media type."""
