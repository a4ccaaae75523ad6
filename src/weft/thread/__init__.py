"""The porcelain: threads and their verbs, compiled contexts and their formats.

A name is imported when it is first used: `weft translate` needs none of the stores.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .asker import (
        SUMMARY_SECONDS,
        Asker,
        Models,
        answer_for,
        ask_within,
        no_answer_within,
    )
    from .attempts import Attempt
    from .budget import Budget, BudgetWarning
    from .compiled import CompiledContext
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
    from .engine import CompactOptions
    from .hooks import Hooks, HookWarning
    from .info import CommitInfo, Stats
    from .lineage import Blame, Version
    from .lookup import RECALL_TOKENS, Hit, RecallPage
    from .media_files import Attachment, Media, read_attachments
    from .merge import MergePreview
    from .params import VendorParams
    from .prefix import Prefix, find_prefix
    from .preview import Preview
    from .sent import Sent
    from .sent_body import Bodies, SentBodyDelta, SentRequest, encode_sent_body, sent_body_entries
    from .store_threads import Target, existing, open, read_title, search, threads, undelete
    from .thread import Thread
    from .undo import Undone

__getattr__ = lazy_names(
    __name__,
    {
        "RECALL_TOKENS": "weft.thread.lookup",
        "SUMMARY_SECONDS": "weft.thread.asker",
        "ArtifactContent": "weft.thread.content",
        "Asker": "weft.thread.asker",
        "Attachment": "weft.thread.media_files",
        "Attempt": "weft.thread.attempts",
        "read_attachments": "weft.thread.media_files",
        "Blame": "weft.thread.lineage",
        "Bodies": "weft.thread.sent_body",
        "Budget": "weft.thread.budget",
        "BudgetWarning": "weft.thread.budget",
        "CommitInfo": "weft.thread.info",
        "CompiledContext": "weft.thread.compiled",
        "Content": "weft.thread.content",
        "CustomContent": "weft.thread.content",
        "DialogueContent": "weft.thread.content",
        "FreeformContent": "weft.thread.content",
        "Hit": "weft.thread.lookup",
        "HookWarning": "weft.thread.hooks",
        "Hooks": "weft.thread.hooks",
        "SentBodyDelta": "weft.thread.sent_body",
        "InstructionContent": "weft.thread.content",
        "SentRequest": "weft.thread.sent_body",
        "Media": "weft.thread.media_files",
        "MergePreview": "weft.thread.merge",
        "Models": "weft.thread.asker",
        "OutputContent": "weft.thread.content",
        "Prefix": "weft.thread.prefix",
        "Preview": "weft.thread.preview",
        "ReasoningContent": "weft.thread.content",
        "RecallPage": "weft.thread.lookup",
        "Sent": "weft.thread.sent",
        "SessionContent": "weft.thread.content",
        "Stats": "weft.thread.info",
        "Target": "weft.thread.store_threads",
        "Thread": "weft.thread.thread",
        "ToolIOContent": "weft.thread.content",
        "Undone": "weft.thread.undo",
        "VendorParams": "weft.thread.params",
        "Version": "weft.thread.lineage",
        "CompactOptions": "weft.thread.engine",
        "answer_for": "weft.thread.asker",
        "ask_within": "weft.thread.asker",
        "existing": "weft.thread.store_threads",
        "extract_text_from_content": "weft.thread.content",
        "register_content_type": "weft.thread.content",
        "unregister_content_type": "weft.thread.content",
        "find_prefix": "weft.thread.prefix",
        "no_answer_within": "weft.thread.asker",
        "open": "weft.thread.store_threads",
        "read_title": "weft.thread.store_threads",
        "search": "weft.thread.store_threads",
        "encode_sent_body": "weft.thread.sent_body",
        "sent_body_entries": "weft.thread.sent_body",
        "threads": "weft.thread.store_threads",
        "undelete": "weft.thread.store_threads",
    },
)

__all__ = [
    "RECALL_TOKENS",
    "SUMMARY_SECONDS",
    "ArtifactContent",
    "Asker",
    "Attachment",
    "Attempt",
    "Blame",
    "Bodies",
    "Budget",
    "BudgetWarning",
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
    "InstructionContent",
    "Media",
    "MergePreview",
    "Models",
    "OutputContent",
    "Prefix",
    "Preview",
    "ReasoningContent",
    "RecallPage",
    "Sent",
    "SentBodyDelta",
    "SentRequest",
    "SessionContent",
    "Stats",
    "Target",
    "Thread",
    "ToolIOContent",
    "Undone",
    "VendorParams",
    "Version",
    "answer_for",
    "ask_within",
    "encode_sent_body",
    "existing",
    "extract_text_from_content",
    "find_prefix",
    "no_answer_within",
    "open",
    "read_attachments",
    "read_title",
    "register_content_type",
    "search",
    "sent_body_entries",
    "threads",
    "undelete",
    "unregister_content_type",
]
