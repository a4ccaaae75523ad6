"""The porcelain: threads and their verbs, compiled contexts and their formats."""

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
from .looking import Hit, Stats
from .open import open, threads
from .params import VendorParams
from .prefix import Prefix, find_prefix
from .rewriting import MergePreview
from .thread import Thread

__all__ = [
    "ArtifactContent",
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
    "ReasoningContent",
    "SessionContent",
    "Stats",
    "Thread",
    "ToolIOContent",
    "VendorParams",
    "extract_text_from_content",
    "find_prefix",
    "open",
    "threads",
]
