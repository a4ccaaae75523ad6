"""What to keep when a thread is too long: checkpoints, ranges, budgets, extraction. Pure."""

from .budget import plan_budget, plan_summary
from .checkpoint import (
    create_checkpoint_content,
    generate_checkpoint_id,
    read_checkpoint,
    read_checkpoints,
)
from .events import (
    SystemMessage,
    Trigger,
    compaction_ended,
    compaction_events,
    compaction_started,
)
from .extract import extract_summary
from .pairs import Pair, find_pairs
from .plan import Pin, Plan, Range, Stripped
from .replace import COMPACTED, Strip, plan_replacements
from .result import CompactResult, compact_result
from .tool import COMPACT_TOOL, RECALL_TOOL, Replacement, ToolDefinition, validate_compact_input

__all__ = [
    "COMPACTED",
    "COMPACT_TOOL",
    "RECALL_TOOL",
    "CompactResult",
    "Pair",
    "Pin",
    "Plan",
    "Range",
    "Replacement",
    "Strip",
    "Stripped",
    "SystemMessage",
    "ToolDefinition",
    "Trigger",
    "compact_result",
    "compaction_ended",
    "compaction_events",
    "compaction_started",
    "create_checkpoint_content",
    "extract_summary",
    "find_pairs",
    "generate_checkpoint_id",
    "plan_budget",
    "plan_replacements",
    "plan_summary",
    "read_checkpoint",
    "read_checkpoints",
    "validate_compact_input",
]
