"""What to keep when a thread is too long: checkpoints, ranges, budgets, extraction. Pure."""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .batches import (
        Batch,
        Clip,
        SummaryBatch,
        as_data,
        body_as_data,
        is_summary,
        join_batches,
        mark_summary,
        read_batches,
        record_batches,
        unmarked,
        write_batches,
    )
    from .budget import FoldOptions, ResultThinner, plan_budget, plan_range, plan_summary
    from .cutoff import (
        Cutoff,
        Importance,
        Scorer,
        choose_cutoff,
        choose_verbatim,
        keep_verbatim,
        measure_cutoff,
        min_summary_need,
        read_importance,
    )
    from .extract import Extract, extract_summary
    from .fidelity import check_summary, read_ground_truth
    from .layout import Layout, Pair, find_pairs, locate_range, rule_rows
    from .names import find_names
    from .non_summary import (
        non_summary_reason,
        without_orders,
        without_preamble,
        without_wrapping,
    )
    from .plan import Method, Pin, Plan, Range, Stripped, Thinned
    from .prompts import (
        KEPT_ALL,
        KEPT_PART,
        PROMPT,
        cut_chunks,
        describe_task,
        is_summary_request,
        max_task_tokens,
        merge_request,
        plain_turn,
        plain_turn_tokens,
        rows_to_summarise,
        summary_request,
        summary_size,
    )
    from .replace import COMPACTED, Strip, plan_replacements
    from .result import (
        FALLBACK,
        PROGRESS,
        STEPS,
        CompactResult,
        MessageChange,
        StepFailure,
        SystemMessage,
        Trigger,
        compact_result,
        compaction_ended,
        compaction_events,
        compaction_failed,
        compaction_fell_back,
        compaction_progress,
        compaction_started,
        describe_changes,
        describe_works,
    )
    from .summarise import (
        PROMPT_TOKENS,
        Answer,
        Stopped,
        Summary,
        SummaryJob,
        SummaryRequest,
        SummarySource,
        max_chunk_tokens,
        max_summary_tokens,
        summarise,
        trim_to,
    )
    from .tool import (
        COMPACT_CONTEXT_TOOL,
        COMPACT_TOOL,
        RECALL_TOOL,
        Replacement,
        ToolDefinition,
        create_checkpoint_content,
        generate_checkpoint_id,
        read_checkpoint,
        read_checkpoints,
        validate_compact_input,
    )
    from .unread import HANDLE_DIGITS, handle_of, thin_unread, unread_rows
    from .window import Breaker, Gauge, Limits, limits_of

__getattr__ = lazy_names(
    __name__,
    {
        "batches": (
            "Batch Clip SummaryBatch as_data body_as_data is_summary join_batches mark_summary "
            "read_batches record_batches unmarked write_batches"
        ),
        "budget": "FoldOptions ResultThinner plan_budget plan_range plan_summary",
        "cutoff": (
            "Cutoff Importance Scorer choose_cutoff choose_verbatim keep_verbatim measure_cutoff "
            "min_summary_need read_importance"
        ),
        "extract": "Extract extract_summary",
        "fidelity": "check_summary read_ground_truth",
        "layout": "Layout Pair find_pairs locate_range rule_rows",
        "names": "find_names",
        "non_summary": "non_summary_reason without_orders without_preamble without_wrapping",
        "plan": "Method Pin Plan Range Stripped Thinned",
        "prompts": (
            "KEPT_ALL KEPT_PART PROMPT cut_chunks describe_task merge_request is_summary_request "
            "plain_turn plain_turn_tokens rows_to_summarise summary_request summary_size "
            "max_task_tokens"
        ),
        "replace": "COMPACTED Strip plan_replacements",
        "result": (
            "FALLBACK PROGRESS STEPS CompactResult MessageChange StepFailure SystemMessage Trigger "
            "compact_result compaction_ended compaction_events compaction_failed "
            "compaction_fell_back compaction_progress compaction_started describe_changes "
            "describe_works"
        ),
        "summarise": (
            "PROMPT_TOKENS Answer Stopped Summary SummaryJob SummaryRequest SummarySource "
            "max_chunk_tokens max_summary_tokens summarise trim_to"
        ),
        "tool": (
            "COMPACT_CONTEXT_TOOL COMPACT_TOOL RECALL_TOOL Replacement ToolDefinition "
            "create_checkpoint_content generate_checkpoint_id read_checkpoint read_checkpoints "
            "validate_compact_input"
        ),
        "unread": "HANDLE_DIGITS handle_of thin_unread unread_rows",
        "window": "Breaker Gauge Limits limits_of",
    },
)

__all__ = [
    "COMPACTED",
    "COMPACT_CONTEXT_TOOL",
    "COMPACT_TOOL",
    "FALLBACK",
    "HANDLE_DIGITS",
    "KEPT_ALL",
    "KEPT_PART",
    "PROGRESS",
    "PROMPT",
    "PROMPT_TOKENS",
    "RECALL_TOOL",
    "STEPS",
    "Answer",
    "Batch",
    "Breaker",
    "Clip",
    "CompactResult",
    "Cutoff",
    "Extract",
    "FoldOptions",
    "Gauge",
    "Importance",
    "Layout",
    "Limits",
    "MessageChange",
    "Method",
    "Pair",
    "Pin",
    "Plan",
    "Range",
    "Replacement",
    "ResultThinner",
    "Scorer",
    "StepFailure",
    "Stopped",
    "Strip",
    "Stripped",
    "Summary",
    "SummaryBatch",
    "SummaryJob",
    "SummaryRequest",
    "SummarySource",
    "SystemMessage",
    "Thinned",
    "ToolDefinition",
    "Trigger",
    "as_data",
    "body_as_data",
    "check_summary",
    "choose_cutoff",
    "choose_verbatim",
    "compact_result",
    "compaction_ended",
    "compaction_events",
    "compaction_failed",
    "compaction_fell_back",
    "compaction_progress",
    "compaction_started",
    "create_checkpoint_content",
    "cut_chunks",
    "describe_changes",
    "describe_task",
    "describe_works",
    "extract_summary",
    "find_names",
    "find_pairs",
    "generate_checkpoint_id",
    "handle_of",
    "is_summary",
    "is_summary_request",
    "join_batches",
    "keep_verbatim",
    "limits_of",
    "locate_range",
    "mark_summary",
    "max_chunk_tokens",
    "max_summary_tokens",
    "max_task_tokens",
    "measure_cutoff",
    "merge_request",
    "min_summary_need",
    "non_summary_reason",
    "plain_turn",
    "plain_turn_tokens",
    "plan_budget",
    "plan_range",
    "plan_replacements",
    "plan_summary",
    "read_batches",
    "read_checkpoint",
    "read_checkpoints",
    "read_ground_truth",
    "read_importance",
    "record_batches",
    "rows_to_summarise",
    "rule_rows",
    "summarise",
    "summary_request",
    "summary_size",
    "thin_unread",
    "trim_to",
    "unmarked",
    "unread_rows",
    "validate_compact_input",
    "without_orders",
    "without_preamble",
    "without_wrapping",
    "write_batches",
]
