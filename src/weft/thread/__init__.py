"""The porcelain: threads and their verbs, compiled contexts and their formats."""

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
from .info import CommitInfo
from .lineage import Blame, Version
from .looking import Hit, Stats
from .merging import MergePreview
from .open import open, threads
from .params import VendorParams
from .prefix import Prefix, find_prefix
from .preview import Preview
from .sent import Sent
from .thread import Thread

__all__ = [
    "ArtifactContent",
    "Blame",
    "Budget",
    "BudgetWarning",
    "CommitInfo",
    "CompiledContext",
    "Content",
    "DialogueContent",
    "FreeformContent",
    "Hit",
    "InstructionContent",
    "MergePreview",
    "OutputContent",
    "Prefix",
    "Preview",
    "ReasoningContent",
    "Sent",
    "SessionContent",
    "Stats",
    "Thread",
    "ToolIOContent",
    "VendorParams",
    "Version",
    "extract_text_from_content",
    "find_prefix",
    "open",
    "threads",
]
