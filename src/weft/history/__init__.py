"""Conversations as objects over a store: commits, compile, merge, diff, undo, search.

Everything here is a function of values; what it reads, it reads through the `Store` it is given.
"""

from .attempts import (
    AttemptBody,
    AttemptReason,
    AttemptState,
    decode_attempt,
    encode_attempt,
    has_content,
)
from .compile import HIDDEN_KINDS, Count, View, show_rows, shows
from .conflict import CHOICES, AnyConflict, Choose, Conflict, ResultConflict, SetupConflict
from .diff import Delta, Diff, diff_rows
from .edit import edit_text
from .forget import Erased, forget_text, plan_forget
from .fsck import JUDGE, Report, end_where_readable, examine, repair
from .gc import Swept, sweep
from .graph import TAG, merge_base, read_ancestors, read_branches, read_tags
from .partial_compile import read_lines
from .match import (
    Point,
    chain_message,
    chain_messages,
    first_link,
    match_key,
    tools_digest,
    trace,
)
from .merge import Merged, merge3, merge_states
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
    State,
    commit_id,
    count_entries,
    decode_body,
    decode_entries,
    decode_entry,
    decode_said,
    encode_commit,
    encode_entry,
    new_slot,
)
from .oplog import REDO, UNDO, is_switch, plan_redo, plan_undo, read_operations
from .original_order import in_places
from .replay import Again, Replayed, advance, replay
from .results import open_answers
from .rewrite import PlannedRewrite, apply_rewrite, plan_rewrite, plan_state
from .json_check import check_sayable
from .signatures import is_sealed
from .search import (
    index_behind,
    message_words,
    read_every_commit,
    search_commits,
)
from .series import Series, encode_series
from .setups import setup_changes
from .tail import read_tail
from .writers import read_writers

__all__ = [
    "CHOICES",
    "HIDDEN_KINDS",
    "JUDGE",
    "PRIORITIES",
    "REDO",
    "TAG",
    "UNDO",
    "Again",
    "AnyConflict",
    "Append",
    "AttemptBody",
    "AttemptReason",
    "AttemptState",
    "Body",
    "Change",
    "Choose",
    "CommitKind",
    "Conflict",
    "Count",
    "Delta",
    "Diff",
    "Draft",
    "Erased",
    "Insert",
    "Merged",
    "Placed",
    "PlannedRewrite",
    "Point",
    "Priority",
    "Replayed",
    "Report",
    "ResultConflict",
    "Rewrite",
    "Row",
    "Series",
    "Setup",
    "SetupConflict",
    "State",
    "Swept",
    "View",
    "advance",
    "apply_rewrite",
    "chain_message",
    "chain_messages",
    "check_sayable",
    "commit_id",
    "count_entries",
    "decode_attempt",
    "decode_body",
    "decode_entries",
    "decode_entry",
    "decode_said",
    "diff_rows",
    "edit_text",
    "encode_attempt",
    "encode_commit",
    "encode_entry",
    "encode_series",
    "end_where_readable",
    "examine",
    "first_link",
    "forget_text",
    "has_content",
    "in_places",
    "index_behind",
    "is_sealed",
    "is_switch",
    "match_key",
    "merge3",
    "merge_base",
    "merge_states",
    "message_words",
    "new_slot",
    "open_answers",
    "plan_forget",
    "plan_redo",
    "plan_rewrite",
    "plan_state",
    "plan_undo",
    "read_ancestors",
    "read_branches",
    "read_every_commit",
    "read_lines",
    "read_operations",
    "read_tags",
    "read_tail",
    "read_writers",
    "repair",
    "replay",
    "search_commits",
    "setup_changes",
    "show_rows",
    "shows",
    "sweep",
    "tools_digest",
    "trace",
]
