"""Conversations as objects over a store: commits, compile, merge, diff, undo, search.

Everything here is a function of values; what it reads, it reads through the `Store` it is given.
"""

from .compile import HIDDEN_KINDS, Count, View, show_rows, shows
from .objects import (
    PRIORITIES,
    Append,
    Body,
    Change,
    CommitKind,
    Draft,
    Insert,
    Placed,
    Priority,
    Rewrite,
    Row,
    Setup,
    commit_id,
    decode_body,
    decode_entry,
    encode_commit,
    encode_entry,
    new_slot,
)
from .rewrite import PlannedRewrite, apply_rewrite, plan_rewrite

__all__ = [
    "HIDDEN_KINDS",
    "PRIORITIES",
    "Append",
    "Body",
    "Change",
    "CommitKind",
    "Count",
    "Draft",
    "Insert",
    "Placed",
    "PlannedRewrite",
    "Priority",
    "Rewrite",
    "Row",
    "Setup",
    "View",
    "apply_rewrite",
    "commit_id",
    "decode_body",
    "decode_entry",
    "encode_commit",
    "encode_entry",
    "new_slot",
    "plan_rewrite",
    "show_rows",
    "shows",
]
