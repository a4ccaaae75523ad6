"""The porcelain: threads and their verbs, compiled contexts and their formats.

A name is imported when it is first used: `weft translate` needs none of the stores.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .asking import (
        SUMMARY_SECONDS,
        Asker,
        Models,
        answer_for,
        ask_within,
        no_answer_within,
    )
    from .attaching import Attachment, Media, read_attachments
    from .attempts import Attempt
    from .budget import Budget, BudgetWarning
    from .compiled import CompiledContext
    from .content import (
        ArtifactContent,
        Content,
        DialogueContent,
        FreeformContent,
        InstructionContent,
        OutputContent,
        ReasoningContent,
        SessionContent,
        ToolIOContent,
        extract_text_from_content,
    )
    from .engine import Wish
    from .hooks import Hooks, HookWarning
    from .imprint import Bodies, Imprint, Letter, take_imprint, write_imprint
    from .info import CommitInfo
    from .lineage import Blame, Version
    from .looking import Hit, Stats
    from .merging import MergePreview
    from .moving import Undone
    from .opening import Target, existing, open, search, threads, undelete
    from .params import VendorParams
    from .prefix import Prefix, find_prefix
    from .preview import Preview
    from .recalling import RECALL_TOKENS, RecallPage
    from .sent import Sent
    from .thread import Thread
    from .title import read_title

__getattr__ = lazy_names(
    __name__,
    {
        "RECALL_TOKENS": "weft.thread.recalling",
        "SUMMARY_SECONDS": "weft.thread.asking",
        "ArtifactContent": "weft.thread.content",
        "Asker": "weft.thread.asking",
        "Attachment": "weft.thread.attaching",
        "Attempt": "weft.thread.attempts",
        "read_attachments": "weft.thread.attaching",
        "Blame": "weft.thread.lineage",
        "Bodies": "weft.thread.imprint",
        "Budget": "weft.thread.budget",
        "BudgetWarning": "weft.thread.budget",
        "CommitInfo": "weft.thread.info",
        "CompiledContext": "weft.thread.compiled",
        "Content": "weft.thread.content",
        "DialogueContent": "weft.thread.content",
        "FreeformContent": "weft.thread.content",
        "Hit": "weft.thread.looking",
        "HookWarning": "weft.thread.hooks",
        "Hooks": "weft.thread.hooks",
        "Imprint": "weft.thread.imprint",
        "InstructionContent": "weft.thread.content",
        "Letter": "weft.thread.imprint",
        "Media": "weft.thread.attaching",
        "MergePreview": "weft.thread.merging",
        "Models": "weft.thread.asking",
        "OutputContent": "weft.thread.content",
        "Prefix": "weft.thread.prefix",
        "Preview": "weft.thread.preview",
        "ReasoningContent": "weft.thread.content",
        "RecallPage": "weft.thread.recalling",
        "Sent": "weft.thread.sent",
        "SessionContent": "weft.thread.content",
        "Stats": "weft.thread.looking",
        "Target": "weft.thread.opening",
        "Thread": "weft.thread.thread",
        "ToolIOContent": "weft.thread.content",
        "Undone": "weft.thread.moving",
        "VendorParams": "weft.thread.params",
        "Version": "weft.thread.lineage",
        "Wish": "weft.thread.engine",
        "answer_for": "weft.thread.asking",
        "ask_within": "weft.thread.asking",
        "existing": "weft.thread.opening",
        "extract_text_from_content": "weft.thread.content",
        "find_prefix": "weft.thread.prefix",
        "no_answer_within": "weft.thread.asking",
        "open": "weft.thread.opening",
        "read_title": "weft.thread.title",
        "search": "weft.thread.opening",
        "take_imprint": "weft.thread.imprint",
        "write_imprint": "weft.thread.imprint",
        "threads": "weft.thread.opening",
        "undelete": "weft.thread.opening",
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
    "CompiledContext",
    "Content",
    "DialogueContent",
    "FreeformContent",
    "Hit",
    "HookWarning",
    "Hooks",
    "Imprint",
    "InstructionContent",
    "Letter",
    "Media",
    "MergePreview",
    "Models",
    "OutputContent",
    "Prefix",
    "Preview",
    "ReasoningContent",
    "RecallPage",
    "Sent",
    "SessionContent",
    "Stats",
    "Target",
    "Thread",
    "ToolIOContent",
    "Undone",
    "VendorParams",
    "Version",
    "Wish",
    "answer_for",
    "ask_within",
    "existing",
    "extract_text_from_content",
    "find_prefix",
    "no_answer_within",
    "open",
    "read_attachments",
    "read_title",
    "search",
    "take_imprint",
    "threads",
    "undelete",
    "write_imprint",
]
