"""Threads and their methods, compiled contexts and their formats.

A name is imported when it is first used: `weft translate` needs none of the stores.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .arguments import CompactOptions
    from .asker import (
        SUMMARY_SECONDS,
        Asker,
        Models,
        ask_within,
        drive,
        error_answer,
        timeout_answer,
    )
    from .attempts import Attempt, read_attempt
    from .compiled import (
        VENDOR_SUMMARIES,
        CompiledContext,
        Recipe,
        VendorParams,
        has_sealed_summaries,
        to_text,
        with_portable_summaries,
    )
    from .content import (
        ArtifactContent,
        Content,
        CustomContent,
        DialogueContent,
        FreeformContent,
        InstructionContent,
        OutputContent,
        ReasoningContent,
        SessionContent,
        ToolIOContent,
        extract_text_from_content,
        register_content_type,
        unregister_content_type,
    )
    from .hooks import Budget, BudgetWarning, Hooks, HookWarning
    from .info import ChainLink, CommitInfo, Imported, Remark, RevertedCommits, Stats, find_reverted
    from .json_delta import common_prefix_length
    from .lineage import Blame, Version
    from .lookup import RECALL_TOKENS, ROLES, Hit, RecallPage, excerpt, named_threads
    from .maintenance import RETENTION_DAYS, forget, fsck, gc, kept_copies, repair_store
    from .media_files import (
        MAX_FILE_BYTES,
        Attachment,
        Media,
        detect_type,
        make_media,
        read_attachments,
    )
    from .merge import SQUASH, MergePreview, Preview, Strategy
    from .sent import Receipt, Sent, has_sent
    from .sent_body import (
        SentBodyCache,
        SentBodyDelta,
        SentRequest,
        encode_sent_body,
        sent_body_entries,
    )
    from .sessions import (
        LOCAL_SCOPE,
        PREFIXES,
        child_key,
        find_imported,
        find_local_thread,
        find_session,
        link_parent,
        link_session,
        safe_name,
        session_id,
        session_key,
        session_name,
    )
    from .source_lines import echo_key, write_echo
    from .store_threads import (
        Prefix,
        Target,
        find_prefix,
        match_names,
        open,
        open_existing,
        read_title,
        search,
        threads,
        undelete,
    )
    from .thread import Thread
    from .transfer import (
        ARCHIVE,
        EXPORT_FORMATS,
        IMPORT_FORMATS,
        SessionFile,
        archive_bytes,
        export_bytes,
        import_bytes,
        read_origin,
        write_session,
    )
    from .undo import REF_OPERATIONS, Undone
    from .usage import AnswerCost, UsageTotal, price_usage, read_costs, total_usage, usage_cost

__getattr__ = lazy_names(
    __name__,
    {
        "arguments": "CompactOptions",
        "asker": "SUMMARY_SECONDS Asker Models ask_within drive error_answer timeout_answer",
        "attempts": "Attempt read_attempt",
        "compiled": (
            "VENDOR_SUMMARIES CompiledContext Recipe VendorParams has_sealed_summaries to_text "
            "with_portable_summaries"
        ),
        "content": (
            "ArtifactContent Content CustomContent DialogueContent FreeformContent "
            "InstructionContent OutputContent ReasoningContent SessionContent ToolIOContent "
            "extract_text_from_content register_content_type unregister_content_type"
        ),
        "hooks": "Budget BudgetWarning HookWarning Hooks",
        "info": "ChainLink CommitInfo Imported Remark RevertedCommits Stats find_reverted",
        "json_delta": "common_prefix_length",
        "lineage": "Blame Version",
        "lookup": "RECALL_TOKENS ROLES Hit RecallPage excerpt named_threads",
        "maintenance": "RETENTION_DAYS forget fsck gc kept_copies repair_store",
        "media_files": "MAX_FILE_BYTES Attachment Media detect_type make_media read_attachments",
        "merge": "SQUASH MergePreview Preview Strategy",
        "sent": "Receipt Sent has_sent",
        "sent_body": "SentBodyCache SentBodyDelta SentRequest encode_sent_body sent_body_entries",
        "sessions": (
            "LOCAL_SCOPE PREFIXES child_key find_imported find_local_thread find_session "
            "link_parent link_session safe_name session_id session_key session_name"
        ),
        "source_lines": "echo_key write_echo",
        "store_threads": (
            "Prefix Target find_prefix match_names open open_existing read_title search threads "
            "undelete"
        ),
        "thread": "Thread",
        "transfer": (
            "ARCHIVE EXPORT_FORMATS IMPORT_FORMATS SessionFile archive_bytes export_bytes "
            "import_bytes read_origin write_session"
        ),
        "undo": "REF_OPERATIONS Undone",
        "usage": "AnswerCost UsageTotal price_usage read_costs total_usage usage_cost",
    },
)

__all__ = [
    "ARCHIVE",
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "LOCAL_SCOPE",
    "MAX_FILE_BYTES",
    "PREFIXES",
    "RECALL_TOKENS",
    "REF_OPERATIONS",
    "RETENTION_DAYS",
    "ROLES",
    "SQUASH",
    "SUMMARY_SECONDS",
    "VENDOR_SUMMARIES",
    "AnswerCost",
    "ArtifactContent",
    "Asker",
    "Attachment",
    "Attempt",
    "Blame",
    "Budget",
    "BudgetWarning",
    "ChainLink",
    "CommitInfo",
    "CompactOptions",
    "CompiledContext",
    "Content",
    "CustomContent",
    "DialogueContent",
    "FreeformContent",
    "Hit",
    "HookWarning",
    "Hooks",
    "Imported",
    "InstructionContent",
    "Media",
    "MergePreview",
    "Models",
    "OutputContent",
    "Prefix",
    "Preview",
    "ReasoningContent",
    "RecallPage",
    "Receipt",
    "Recipe",
    "Remark",
    "RevertedCommits",
    "Sent",
    "SentBodyCache",
    "SentBodyDelta",
    "SentRequest",
    "SessionContent",
    "SessionFile",
    "Stats",
    "Strategy",
    "Target",
    "Thread",
    "ToolIOContent",
    "Undone",
    "UsageTotal",
    "VendorParams",
    "Version",
    "archive_bytes",
    "ask_within",
    "child_key",
    "common_prefix_length",
    "detect_type",
    "drive",
    "echo_key",
    "encode_sent_body",
    "error_answer",
    "excerpt",
    "export_bytes",
    "extract_text_from_content",
    "find_imported",
    "find_local_thread",
    "find_prefix",
    "find_reverted",
    "find_session",
    "forget",
    "fsck",
    "gc",
    "has_sealed_summaries",
    "has_sent",
    "import_bytes",
    "kept_copies",
    "link_parent",
    "link_session",
    "make_media",
    "match_names",
    "named_threads",
    "open",
    "open_existing",
    "price_usage",
    "read_attachments",
    "read_attempt",
    "read_costs",
    "read_origin",
    "read_title",
    "register_content_type",
    "repair_store",
    "safe_name",
    "search",
    "sent_body_entries",
    "session_id",
    "session_key",
    "session_name",
    "threads",
    "timeout_answer",
    "to_text",
    "total_usage",
    "undelete",
    "unregister_content_type",
    "usage_cost",
    "with_portable_summaries",
    "write_echo",
    "write_session",
]
