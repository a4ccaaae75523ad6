"""Weft keeps an agent's conversation: version control, compaction and translation.

The public names, explicit and sorted. Each is imported when it is first used, so that
`import weft` stays quick and a command pays only for what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what a type checker sees; the table below is what runs
    __version__: str
    from weft._open import (
        open as open,
    )
    from weft.agent import (
        Agent as Agent,
    )
    from weft.agent import (
        AgentAnswer as AgentAnswer,
    )
    from weft.agent import (
        Compaction as Compaction,
    )
    from weft.catalog import (
        Catalog as Catalog,
    )
    from weft.catalog import (
        add_models as add_models,
    )
    from weft.catalog import (
        load_catalog as load_catalog,
    )
    from weft.codec import (
        apply_last_system_cache_breakpoint as apply_last_system_cache_breakpoint,
    )
    from weft.codec import (
        build_anthropic_system_param as build_anthropic_system_param,
    )
    from weft.codec import (
        encode_message as encode_message,
    )
    from weft.compact import (
        COMPACT_TOOL as COMPACT_TOOL,
    )
    from weft.compact import (
        RECALL_TOOL as RECALL_TOOL,
    )
    from weft.compact import (
        CompactResult as CompactResult,
    )
    from weft.compact import (
        Replacement as Replacement,
    )
    from weft.compact import (
        ToolDefinition as ToolDefinition,
    )
    from weft.compact import (
        create_checkpoint_content as create_checkpoint_content,
    )
    from weft.compact import (
        generate_checkpoint_id as generate_checkpoint_id,
    )
    from weft.compact import (
        validate_compact_input as validate_compact_input,
    )
    from weft.errors import (
        Ambiguous as Ambiguous,
    )
    from weft.errors import (
        BudgetExceeded as BudgetExceeded,
    )
    from weft.errors import (
        CompactRefused as CompactRefused,
    )
    from weft.errors import (
        ConfigError as ConfigError,
    )
    from weft.errors import (
        MergeConflict as MergeConflict,
    )
    from weft.errors import (
        NotFound as NotFound,
    )
    from weft.errors import (
        Refused as Refused,
    )
    from weft.errors import (
        StepLimit as StepLimit,
    )
    from weft.errors import (
        StoreError as StoreError,
    )
    from weft.errors import (
        SummaryFailed as SummaryFailed,
    )
    from weft.errors import (
        ThreadError as ThreadError,
    )
    from weft.errors import (
        UpstreamFailed as UpstreamFailed,
    )
    from weft.errors import (
        WeftError as WeftError,
    )
    from weft.history import (
        AttemptReason as AttemptReason,
    )
    from weft.history import (
        Conflict as Conflict,
    )
    from weft.history import (
        Draft as Draft,
    )
    from weft.history import (
        ResultConflict as ResultConflict,
    )
    from weft.history import (
        SetupConflict as SetupConflict,
    )
    from weft.model import (
        Checkpoint as Checkpoint,
    )
    from weft.model import (
        Loss as Loss,
    )
    from weft.model import (
        Message as Message,
    )
    from weft.model import (
        Reminder as Reminder,
    )
    from weft.model import (
        Request as Request,
    )
    from weft.model import (
        Response as Response,
    )
    from weft.thread import (
        ArtifactContent as ArtifactContent,
    )
    from weft.thread import (
        Attempt as Attempt,
    )
    from weft.thread import (
        Blame as Blame,
    )
    from weft.thread import (
        Budget as Budget,
    )
    from weft.thread import (
        BudgetWarning as BudgetWarning,
    )
    from weft.thread import (
        CommitInfo as CommitInfo,
    )
    from weft.thread import (
        CompiledContext as CompiledContext,
    )
    from weft.thread import (
        DialogueContent as DialogueContent,
    )
    from weft.thread import (
        FreeformContent as FreeformContent,
    )
    from weft.thread import (
        Hit as Hit,
    )
    from weft.thread import (
        Hooks as Hooks,
    )
    from weft.thread import (
        HookWarning as HookWarning,
    )
    from weft.thread import (
        InstructionContent as InstructionContent,
    )
    from weft.thread import (
        MergePreview as MergePreview,
    )
    from weft.thread import (
        OutputContent as OutputContent,
    )
    from weft.thread import (
        Preview as Preview,
    )
    from weft.thread import (
        ReasoningContent as ReasoningContent,
    )
    from weft.thread import (
        Sent as Sent,
    )
    from weft.thread import (
        SessionContent as SessionContent,
    )
    from weft.thread import (
        Thread as Thread,
    )
    from weft.thread import (
        ToolIOContent as ToolIOContent,
    )
    from weft.thread import (
        Undone as Undone,
    )
    from weft.thread import (
        Version as Version,
    )
    from weft.thread import (
        extract_text_from_content as extract_text_from_content,
    )
    from weft.thread import (
        search as search,
    )
    from weft.thread import (
        threads as threads,
    )
    from weft.thread import (
        undelete as undelete,
    )
    from weft.translation.streaming import (
        StreamTranslator as StreamTranslator,
    )
    from weft.translation.translate import (
        Translation as Translation,
    )
    from weft.translation.translate import (
        decode as decode,
    )
    from weft.translation.translate import (
        encode as encode,
    )
    from weft.translation.translate import (
        translate as translate,
    )
    from weft.translation.translate import (
        translate_error as translate_error,
    )
    from weft.translation.translate import (
        translate_response as translate_response,
    )

_NAMES: dict[str, str] = {
    "Agent": "weft.agent",
    "AgentAnswer": "weft.agent",
    "Ambiguous": "weft.errors",
    "ArtifactContent": "weft.thread",
    "Attempt": "weft.thread",
    "AttemptReason": "weft.history",
    "Blame": "weft.thread",
    "Budget": "weft.thread",
    "BudgetExceeded": "weft.errors",
    "BudgetWarning": "weft.thread",
    "COMPACT_TOOL": "weft.compact",
    "Catalog": "weft.catalog",
    "Checkpoint": "weft.model",
    "CommitInfo": "weft.thread",
    "CompactRefused": "weft.errors",
    "CompactResult": "weft.compact",
    "Compaction": "weft.agent",
    "CompiledContext": "weft.thread",
    "ConfigError": "weft.errors",
    "Conflict": "weft.history",
    "DialogueContent": "weft.thread",
    "Draft": "weft.history",
    "FreeformContent": "weft.thread",
    "Hit": "weft.thread",
    "HookWarning": "weft.thread",
    "Hooks": "weft.thread",
    "InstructionContent": "weft.thread",
    "Loss": "weft.model",
    "MergeConflict": "weft.errors",
    "MergePreview": "weft.thread",
    "Message": "weft.model",
    "NotFound": "weft.errors",
    "OutputContent": "weft.thread",
    "Preview": "weft.thread",
    "RECALL_TOOL": "weft.compact",
    "ReasoningContent": "weft.thread",
    "Refused": "weft.errors",
    "Reminder": "weft.model",
    "Replacement": "weft.compact",
    "Request": "weft.model",
    "Response": "weft.model",
    "ResultConflict": "weft.history",
    "Sent": "weft.thread",
    "SessionContent": "weft.thread",
    "SetupConflict": "weft.history",
    "StepLimit": "weft.errors",
    "StoreError": "weft.errors",
    "StreamTranslator": "weft.translation.streaming",
    "SummaryFailed": "weft.errors",
    "Thread": "weft.thread",
    "ThreadError": "weft.errors",
    "ToolDefinition": "weft.compact",
    "ToolIOContent": "weft.thread",
    "Translation": "weft.translation.translate",
    "Undone": "weft.thread",
    "UpstreamFailed": "weft.errors",
    "Version": "weft.thread",
    "WeftError": "weft.errors",
    "add_models": "weft.catalog",
    "apply_last_system_cache_breakpoint": "weft.codec",
    "build_anthropic_system_param": "weft.codec",
    "create_checkpoint_content": "weft.compact",
    "decode": "weft.translation.translate",
    "encode": "weft.translation.translate",
    "encode_message": "weft.codec",
    "extract_text_from_content": "weft.thread",
    "generate_checkpoint_id": "weft.compact",
    "load_catalog": "weft.catalog",
    "open": "weft._open",
    "search": "weft.thread",
    "threads": "weft.thread",
    "translate": "weft.translation.translate",
    "translate_error": "weft.translation.translate",
    "translate_response": "weft.translation.translate",
    "undelete": "weft.thread",
    "validate_compact_input": "weft.compact",
}

__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll] - the table is the list


def __getattr__(name: str) -> Any:
    """A public name, imported on first use."""
    if name == "__version__":
        return import_module("importlib.metadata").version("weft")
    if name not in _NAMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
