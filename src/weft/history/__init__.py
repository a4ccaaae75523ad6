"""Conversations as objects over a store: commits, compile, merge, diff, undo, search.

Functions of values; all reading and writing goes through the `Store` argument.
"""

from typing import TYPE_CHECKING

from weft.lazy import lazy_names

if TYPE_CHECKING:
    from .client_folder import find_folder
    from .client_text import (
        CLIENT_TEXT,
        is_codex_context,
        split_parts,
        split_typed,
        text_for_list,
        without_client_text,
    )
    from .compile import (
        HIDDEN_KINDS,
        Count,
        View,
        compile_last,
        compile_slots,
        compile_tail,
        is_signed,
        is_visible,
        visible_rows,
    )
    from .conflict import (
        CHOICES,
        AnyConflict,
        Choose,
        Conflict,
        ResultConflict,
        SetupConflict,
        answers_to_open_calls,
    )
    from .diff import Diff, DiffLine, diff_rows
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
        read_until_known,
        read_writers,
    )
    from .maintenance import (
        OBJECT_FORMAT,
        Erased,
        LiveName,
        Report,
        Swept,
        examine,
        forget_text,
        plan_forget,
        repair,
        sweep,
        truncate_damaged_branch,
    )
    from .match import (
        FirstTurn,
        MatchPoint,
        MatchTrace,
        Series,
        align_trimmed,
        align_turns,
        chain_message,
        chain_messages,
        count_equal_messages,
        echo_length,
        empty_chain,
        encode_series,
        find_edit,
        has_results_without_ids,
        is_echo,
        is_same_input,
        match_key,
        match_points,
        pair_calls,
        tools_digest,
    )
    from .merge import (
        Merged,
        ReplayedCommit,
        ReplayResult,
        edit_text,
        merge3,
        merge_states,
        replay,
        restore_original_order,
        setup_changes,
    )
    from .objects import (
        PRIORITIES,
        STOP_REASON,
        Append,
        AttemptBody,
        AttemptReason,
        AttemptState,
        Body,
        CallBody,
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
        add_times,
        check_json,
        commit_id,
        count_entries,
        decode_appended,
        decode_attempt,
        decode_body,
        decode_body_data,
        decode_call,
        decode_entries,
        decode_entry,
        encode_attempt,
        encode_body,
        encode_call,
        encode_commit,
        encode_entry,
        has_content,
        inserted_slots,
        read_stop_reason,
        read_times,
    )
    from .oplog import (
        REDO,
        UNDO,
        is_switch,
        plan_redo,
        plan_undo,
        read_operations,
        undoable_moves,
    )
    from .ops import (
        ListRows,
        PlannedRewrite,
        apply_rewrite,
        plan_rewrite,
        plan_state,
        run_step,
        run_steps,
    )
    from .present import compile_present
    from .search import (
        Located,
        Matches,
        RecallFilter,
        index_after_write,
        index_new_commits,
        message_words,
        note_texts,
        parse_query,
        read_every_commit,
        recall_commits,
        search_commits,
        search_matches,
        threads_with,
    )
    from .terms import Word, count_terms
    from .turns import is_typed, running_turn

__getattr__ = lazy_names(
    __name__,
    {
        "client_folder": "find_folder",
        "client_text": (
            "CLIENT_TEXT is_codex_context split_parts split_typed text_for_list without_client_text"
        ),
        "compile": (
            "HIDDEN_KINDS Count View compile_last compile_slots compile_tail is_signed is_visible "
            "visible_rows"
        ),
        "conflict": (
            "CHOICES AnyConflict Choose Conflict ResultConflict SetupConflict answers_to_open_calls"
        ),
        "diff": "Diff DiffLine diff_rows",
        "graph": (
            "TAG PlacedCommit assign_lanes merge_base newest_first read_ancestors read_branches "
            "read_reachable read_until_known read_tags read_writers"
        ),
        "maintenance": (
            "OBJECT_FORMAT Report truncate_damaged_branch examine repair Swept sweep Erased "
            "LiveName forget_text plan_forget"
        ),
        "match": (
            "FirstTurn MatchPoint MatchTrace Series align_trimmed align_turns chain_message "
            "chain_messages count_equal_messages echo_length empty_chain encode_series find_edit "
            "has_results_without_ids is_echo is_same_input match_key "
            "match_points pair_calls tools_digest"
        ),
        "merge": (
            "Merged edit_text merge3 merge_states setup_changes restore_original_order "
            "ReplayedCommit ReplayResult replay"
        ),
        "objects": (
            "PRIORITIES Append Body Change CommitKind Draft Insert InsertedRow Priority Rewrite "
            "Row Setup State commit_id count_entries decode_appended decode_body decode_body_data "
            "STOP_REASON add_times read_times read_stop_reason decode_entries "
            "decode_entry encode_body encode_commit encode_entry inserted_slots check_json "
            "AttemptBody AttemptReason AttemptState CallBody decode_attempt decode_call "
            "encode_attempt encode_call has_content"
        ),
        "oplog": "REDO UNDO is_switch plan_redo plan_undo read_operations undoable_moves",
        "ops": "ListRows apply_rewrite run_step run_steps PlannedRewrite plan_rewrite plan_state",
        "present": "compile_present",
        "search": (
            "Located Matches RecallFilter index_after_write index_new_commits message_words "
            "note_texts parse_query read_every_commit recall_commits search_commits "
            "search_matches threads_with"
        ),
        "terms": "Word count_terms",
        "turns": "is_typed running_turn",
    },
)

__all__ = [
    "CHOICES",
    "CLIENT_TEXT",
    "HIDDEN_KINDS",
    "OBJECT_FORMAT",
    "PRIORITIES",
    "REDO",
    "STOP_REASON",
    "TAG",
    "UNDO",
    "AnyConflict",
    "Append",
    "AttemptBody",
    "AttemptReason",
    "AttemptState",
    "Body",
    "CallBody",
    "Change",
    "Choose",
    "CommitKind",
    "Conflict",
    "Count",
    "Diff",
    "DiffLine",
    "Draft",
    "Erased",
    "FirstTurn",
    "Insert",
    "InsertedRow",
    "ListRows",
    "LiveName",
    "Located",
    "MatchPoint",
    "MatchTrace",
    "Matches",
    "Merged",
    "PlacedCommit",
    "PlannedRewrite",
    "Priority",
    "RecallFilter",
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
    "View",
    "Word",
    "add_times",
    "align_trimmed",
    "align_turns",
    "answers_to_open_calls",
    "apply_rewrite",
    "assign_lanes",
    "chain_message",
    "chain_messages",
    "check_json",
    "commit_id",
    "compile_last",
    "compile_present",
    "compile_slots",
    "compile_tail",
    "count_entries",
    "count_equal_messages",
    "count_terms",
    "decode_appended",
    "decode_attempt",
    "decode_body",
    "decode_body_data",
    "decode_call",
    "decode_entries",
    "decode_entry",
    "diff_rows",
    "echo_length",
    "edit_text",
    "empty_chain",
    "encode_attempt",
    "encode_body",
    "encode_call",
    "encode_commit",
    "encode_entry",
    "encode_series",
    "examine",
    "find_edit",
    "find_folder",
    "forget_text",
    "has_content",
    "has_results_without_ids",
    "index_after_write",
    "index_new_commits",
    "inserted_slots",
    "is_codex_context",
    "is_echo",
    "is_same_input",
    "is_signed",
    "is_switch",
    "is_typed",
    "is_visible",
    "match_key",
    "match_points",
    "merge3",
    "merge_base",
    "merge_states",
    "message_words",
    "newest_first",
    "note_texts",
    "pair_calls",
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
    "read_stop_reason",
    "read_tags",
    "read_times",
    "read_until_known",
    "read_writers",
    "recall_commits",
    "repair",
    "replay",
    "restore_original_order",
    "run_step",
    "run_steps",
    "running_turn",
    "search_commits",
    "search_matches",
    "setup_changes",
    "split_parts",
    "split_typed",
    "sweep",
    "text_for_list",
    "threads_with",
    "tools_digest",
    "truncate_damaged_branch",
    "undoable_moves",
    "visible_rows",
    "without_client_text",
]
