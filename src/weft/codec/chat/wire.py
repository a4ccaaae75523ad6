"""Constants of OpenAI Chat Completions: https://platform.openai.com/docs/api-reference/chat

Many servers implement variants of this protocol. Unknown members are kept. Members with a known
meaning (reasoning has three names) become model fields, and are written back under their original
name.
"""

import re

from weft.model import ErrorKind, StopKind

PROTOCOL = "openai-chat"

CHUNK = "chat.completion.chunk"
COMPLETION = "chat.completion"

DECODED_MEMBERS = frozenset({"model", "messages"})
"""Members that are decoded completely. `Request.raw` keeps all others, except a `tools` list with
items."""

CALL_ID_LENGTH = 40
"""The maximum length of a call id; longer ones are refused ("string too long")."""

MAX_PARTICIPANT_LENGTH = 64
LEGAL_PARTICIPANT = re.compile(r"[^\s<|\\/>]{1,64}")
REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]")
"""What OpenAI requires of a message's `name`: "Expected a string that matches the pattern
'^[^\\s<|\\\\/>]+$'", at most 64 characters
(https://community.openai.com/t/invalid-messages-name/950286)."""

THINKING_MEMBERS = ("reasoning_content", "reasoning", "reasoning_text")
"""The members in which servers send thinking: DeepSeek; OpenRouter and Groq; Copilot."""

HIDDEN = "hidden"
"""In place of a member's name: the client does not get the thinking."""

REASONING_SIGNATURE = "reasoning_opaque"
"""The member for the signature of thinking: Copilot."""

REASONING_DETAILS = "reasoning_details"
"""The member for thinking in pieces, with signatures: OpenRouter."""

FINISH_REASONS: dict[str, StopKind] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
    "content_filter": "filter",
}

KIND_FINISH_REASON: dict[StopKind, str] = {
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

FAILED_STOPS: dict[str, ErrorKind] = {
    "abort": "server",
    "error": "server",
    "insufficient_system_resource": "overloaded",
    "network_error": "server",
}
"""Finish reasons that mean a failure, of vLLM and SGLang, OpenRouter and Mistral, DeepSeek, GLM:
https://openrouter.ai/docs/api-reference/overview#finish-reason
https://docs.mistral.ai/api/#tag/chat
https://api-docs.deepseek.com/api/create-chat-completion
https://docs.z.ai/api-reference/llm/chat-completion"""

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
