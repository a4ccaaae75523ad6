"""Weft keeps an agent's conversation: version control, compaction and translation.

The public names, explicit and sorted. Each is imported when it is first used, so that
`import weft` stays quick and a command pays only for what it needs.
"""

from importlib import import_module
from typing import Any

_NAMES: dict[str, str] = {
    "Agent": "weft.agent",
    "Ambiguous": "weft.errors",
    "ArtifactContent": "weft.thread",
    "BudgetExceeded": "weft.errors",
    "COMPACT_TOOL": "weft.compact",
    "Checkpoint": "weft.model",
    "CommitInfo": "weft.thread",
    "CompactRefused": "weft.errors",
    "CompactResult": "weft.compact",
    "CompiledContext": "weft.thread",
    "ConfigError": "weft.errors",
    "DialogueContent": "weft.thread",
    "FreeformContent": "weft.thread",
    "InstructionContent": "weft.thread",
    "Loss": "weft.model",
    "Message": "weft.model",
    "NotFound": "weft.errors",
    "OutputContent": "weft.thread",
    "RECALL_TOOL": "weft.compact",
    "ReasoningContent": "weft.thread",
    "Refused": "weft.errors",
    "Reminder": "weft.model",
    "Replacement": "weft.compact",
    "Request": "weft.model",
    "Response": "weft.model",
    "SessionContent": "weft.thread",
    "StoreError": "weft.errors",
    "StreamTranslator": "weft.thread.translate",
    "Thread": "weft.thread",
    "ThreadError": "weft.errors",
    "ToolDefinition": "weft.compact",
    "ToolIOContent": "weft.thread",
    "Translation": "weft.thread.translate",
    "WeftError": "weft.errors",
    "apply_last_system_cache_breakpoint": "weft.codec",
    "build_anthropic_system_param": "weft.codec",
    "create_checkpoint_content": "weft.compact",
    "decode": "weft.thread.translate",
    "encode": "weft.thread.translate",
    "encode_message": "weft.codec",
    "extract_text_from_content": "weft.thread",
    "generate_checkpoint_id": "weft.compact",
    "open": "weft.thread",
    "threads": "weft.thread",
    "translate": "weft.thread.translate",
    "translate_error": "weft.thread.translate",
    "translate_response": "weft.thread.translate",
    "validate_compact_input": "weft.compact",
}

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll] - the table is the list


def __getattr__(name: str) -> Any:
    """A public name, imported on first use."""
    if name not in _NAMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
