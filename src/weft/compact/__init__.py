"""What to keep when a thread is too long: checkpoints, ranges, budgets, extraction. Pure."""

from .batches import (
    Batch,
    Clip,
    Told,
    is_telling,
    read_batches,
    record_batches,
    tell_batches,
    write_batches,
)
from .border import Fold, choose_fold, keep_verbatim
from .budget import plan_budget, plan_summary
from .checkpoint import (
    create_checkpoint_content,
    generate_checkpoint_id,
    read_checkpoint,
    read_checkpoints,
)
from .chunks import cut_chunks, weigh
from .events import (
    PROGRESS,
    SystemMessage,
    Trigger,
    compaction_ended,
    compaction_events,
    compaction_failed,
    compaction_progress,
    compaction_started,
)
from .extract import extract_summary
from .folding import Folding
from .pairs import Pair, find_pairs
from .plan import Pin, Plan, Range, Stripped
from .prompts import (
    folding_request,
    is_summary_request,
    retell,
    summarised,
    summary_request,
)
from .replace import COMPACTED, Strip, plan_replacements
from .result import CompactResult, compact_result
from .score import Importance, Scorer, choose_verbatim, read_importance
from .summarise import FRAME, Asking, Order, Past, Summary, chunk_room, most_told, summarise
from .tool import COMPACT_TOOL, RECALL_TOOL, Replacement, ToolDefinition, validate_compact_input
from .window import Breaker, Gauge, Limits, limits_of

__all__ = [
    "COMPACTED",
    "COMPACT_TOOL",
    "FRAME",
    "PROGRESS",
    "RECALL_TOOL",
    "Asking",
    "Batch",
    "Breaker",
    "Clip",
    "CompactResult",
    "Fold",
    "Folding",
    "Gauge",
    "Importance",
    "Limits",
    "Order",
    "Pair",
    "Past",
    "Pin",
    "Plan",
    "Range",
    "Replacement",
    "Scorer",
    "Strip",
    "Stripped",
    "Summary",
    "SystemMessage",
    "Told",
    "ToolDefinition",
    "Trigger",
    "choose_fold",
    "choose_verbatim",
    "chunk_room",
    "compact_result",
    "compaction_ended",
    "compaction_events",
    "compaction_failed",
    "compaction_progress",
    "compaction_started",
    "create_checkpoint_content",
    "cut_chunks",
    "extract_summary",
    "find_pairs",
    "folding_request",
    "generate_checkpoint_id",
    "is_summary_request",
    "is_telling",
    "keep_verbatim",
    "limits_of",
    "most_told",
    "plan_budget",
    "plan_replacements",
    "plan_summary",
    "read_batches",
    "read_checkpoint",
    "read_checkpoints",
    "read_importance",
    "record_batches",
    "retell",
    "summarise",
    "summarised",
    "summary_request",
    "tell_batches",
    "validate_compact_input",
    "weigh",
    "write_batches",
]
