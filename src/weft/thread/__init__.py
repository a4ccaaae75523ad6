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
from .open import open, threads
from .thread import Thread

__all__ = [
    "ArtifactContent",
    "CommitInfo",
    "CompiledContext",
    "Content",
    "DialogueContent",
    "FreeformContent",
    "InstructionContent",
    "OutputContent",
    "ReasoningContent",
    "SessionContent",
    "Thread",
    "ToolIOContent",
    "extract_text_from_content",
    "open",
    "threads",
]
