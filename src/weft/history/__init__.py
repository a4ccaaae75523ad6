"""Conversations as objects over a store: commits, compile, merge, diff, undo, search.

Functions of values; all reading and writing goes through the `Store` argument.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .attempts import (
        AttemptBody,
        AttemptReason,
        AttemptState,
        decode_attempt,
        encode_attempt,
        has_content,
    )
    from .compile import (
        HIDDEN_KINDS,
        Count,
        View,
        compile_slots,
        compile_tail,
        is_signed,
        show_rows,
        shows,
    )
    from .conflict import CHOICES, AnyConflict, Choose, Conflict, ResultConflict, SetupConflict
    from .diff import Diff, DiffLine, diff_rows
    from .forget import Erased, forget_text, plan_forget
    from .fsck import OBJECT_FORMAT, Report, end_where_readable, examine, repair
    from .gc import Swept, sweep
    from .graph import (
        TAG,
        PlacedCommit,
        assign_lanes,
        merge_base,
        newest_first,
        read_ancestors,
        read_branches,
        read_reachable,
        read_tags,
        read_writers,
    )
    from .json_check import check_json
    from .match import (
        Point,
        Series,
        Trace,
        align_turns,
        chain_message,
        chain_messages,
        echo_length,
        encode_series,
        equal_length,
        find_edit,
        first_link,
        is_echo,
        match_key,
        tools_digest,
        trace,
    )
    from .merge import Merged, edit_text, merge3, merge_states, setup_changes
    from .objects import (
        PRIORITIES,
        Append,
        Body,
        Change,
        CommitKind,
        Draft,
        Insert,
        InsertedRow,
        Priority,
        Rewrite,
        Row,
        Setup,
        State,
        commit_id,
        count_entries,
        decode_appended,
        decode_body,
        decode_entries,
        decode_entry,
        encode_body,
        encode_commit,
        encode_entry,
        new_slot,
    )
    from .oplog import REDO, UNDO, is_switch, plan_redo, plan_undo, read_operations
    from .ops import ListRows, apply_rewrite, run_step, run_steps
    from .original_order import restore_original_order
    from .replay import ReplayedCommit, ReplayResult, replay
    from .results import open_answers
    from .rewrite import PlannedRewrite, plan_rewrite, plan_state
    from .search import (
        CLOSING_PAGES,
        Narrowing,
        index_behind,
        message_words,
        parse_query,
        read_every_commit,
        recall_commits,
        search_commits,
        threads_with,
    )
    from .terms import count_terms

__getattr__ = lazy_names(
    __name__,
    {
        "attempts": (
            "AttemptBody AttemptReason AttemptState decode_attempt encode_attempt has_content"
        ),
        "compile": "HIDDEN_KINDS Count View compile_slots compile_tail is_signed show_rows shows",
        "conflict": "CHOICES AnyConflict Choose Conflict ResultConflict SetupConflict",
        "diff": "Diff DiffLine diff_rows",
        "forget": "Erased forget_text plan_forget",
        "fsck": "OBJECT_FORMAT Report end_where_readable examine repair",
        "gc": "Swept sweep",
        "graph": (
            "TAG PlacedCommit assign_lanes merge_base newest_first read_ancestors read_branches "
            "read_reachable read_tags read_writers"
        ),
        "json_check": "check_json",
        "match": (
            "Point Series Trace align_turns chain_message chain_messages echo_length encode_series "
            "equal_length find_edit first_link is_echo match_key tools_digest trace"
        ),
        "merge": "Merged edit_text merge3 merge_states setup_changes",
        "objects": (
            "PRIORITIES Append Body Change CommitKind Draft Insert InsertedRow Priority Rewrite "
            "Row Setup State commit_id count_entries decode_appended decode_body decode_entries "
            "decode_entry encode_body encode_commit encode_entry new_slot"
        ),
        "oplog": "REDO UNDO is_switch plan_redo plan_undo read_operations",
        "ops": "ListRows apply_rewrite run_step run_steps",
        "original_order": "restore_original_order",
        "replay": "ReplayedCommit ReplayResult replay",
        "results": "open_answers",
        "rewrite": "PlannedRewrite plan_rewrite plan_state",
        "search": (
            "CLOSING_PAGES Narrowing index_behind message_words parse_query read_every_commit "
            "recall_commits search_commits threads_with"
        ),
        "terms": "count_terms",
    },
)

__all__ = [
    "CHOICES",
    "CLOSING_PAGES",
    "HIDDEN_KINDS",
    "OBJECT_FORMAT",
    "PRIORITIES",
    "REDO",
    "TAG",
    "UNDO",
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
    "Diff",
    "DiffLine",
    "Draft",
    "Erased",
    "Insert",
    "InsertedRow",
    "ListRows",
    "Merged",
    "Narrowing",
    "PlacedCommit",
    "PlannedRewrite",
    "Point",
    "Priority",
    "ReplayResult",
    "ReplayedCommit",
    "Report",
    "ResultConflict",
    "Rewrite",
    "Row",
    "Series",
    "Setup",
    "SetupConflict",
    "State",
    "Swept",
    "Trace",
    "View",
    "align_turns",
    "apply_rewrite",
    "assign_lanes",
    "chain_message",
    "chain_messages",
    "check_json",
    "commit_id",
    "compile_slots",
    "compile_tail",
    "count_entries",
    "count_terms",
    "decode_appended",
    "decode_attempt",
    "decode_body",
    "decode_entries",
    "decode_entry",
    "diff_rows",
    "echo_length",
    "edit_text",
    "encode_attempt",
    "encode_body",
    "encode_commit",
    "encode_entry",
    "encode_series",
    "end_where_readable",
    "equal_length",
    "examine",
    "find_edit",
    "first_link",
    "forget_text",
    "has_content",
    "index_behind",
    "is_echo",
    "is_signed",
    "is_switch",
    "match_key",
    "merge3",
    "merge_base",
    "merge_states",
    "message_words",
    "new_slot",
    "newest_first",
    "open_answers",
    "parse_query",
    "plan_forget",
    "plan_redo",
    "plan_rewrite",
    "plan_state",
    "plan_undo",
    "read_ancestors",
    "read_branches",
    "read_every_commit",
    "read_operations",
    "read_reachable",
    "read_tags",
    "read_writers",
    "recall_commits",
    "repair",
    "replay",
    "restore_original_order",
    "run_step",
    "run_steps",
    "search_commits",
    "setup_changes",
    "show_rows",
    "shows",
    "sweep",
    "threads_with",
    "tools_digest",
    "trace",
]
