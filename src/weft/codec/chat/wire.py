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

REQUEST_SETUP = frozenset({"model", "messages"})
"""Members for the conversation; a `tools` list that is not empty is one too."""

CALL_ID_LENGTH = 40
"""The maximum length of a call id; longer ones are refused ("string too long")."""

LONGEST_PARTICIPANT = 64
LEGAL_PARTICIPANT = re.compile(r"[^\s<|\\/>]{1,64}")
REFUSED_IN_NAMES = re.compile(r"[\s<|\\/>]")
"""A message's `name`: "Expected a string that matches the pattern '^[^\\s<|\\\\/>]+$'", at most 64
characters (https://community.openai.com/t/invalid-messages-name/950286)."""

REASONING = ("reasoning_content", "reasoning", "reasoning_text")
"""Members for thinking, by server: DeepSeek; OpenRouter and Groq; Copilot."""

HIDDEN = "hidden"
"""Marks thinking that is not shown to a client of this protocol."""

REASONING_PROOF = "reasoning_opaque"
REASONING_DETAILS = "reasoning_details"

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
"""Finish reasons that mean a failure: vLLM and SGLang; OpenRouter and Mistral; DeepSeek; GLM.
https://openrouter.ai/docs/api-reference/overview#finish-reason
https://docs.mistral.ai/api/#tag/chat
https://api-docs.deepseek.com/api/create-chat-completion
https://docs.z.ai/api-reference/llm/chat-completion"""

AUDIO_FORMATS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
