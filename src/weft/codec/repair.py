"""Make a list of messages valid for its target.

Each protocol states its requirements in `Rules`. `arrange` returns the turns to write, in order,
with the original position of each block. The rules, and the vendors that require them:

- Leading system messages leave the list: Anthropic refuses an inline system message at position 0.
- A later system message stays if the model and its neighbours allow it, else it becomes a `user`
  message: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system
- Nothing comes between a call and its results: all vendors require it.
- The results of parallel calls are in one turn, before its other content: Anthropic, Gemini.
- A call without a result gets an error result, and a result without a call becomes text: all
  vendors refuse an unpaired id.
- Empty text is not sent: Anthropic says "text content blocks must be non-empty".
- The list does not begin with the assistant, and for some models does not end with it: Anthropic.
  A prefill may not end in whitespace: "final assistant content cannot end with trailing
  whitespace" (https://github.com/anomalyco/opencode/issues/1295).
- Signatures, file ids and blocks of another vendor are dropped. So is the billing block that Claude
  Code puts first: it differs in every request, so no prefix with it is ever found in a cache
  (https://github.com/anthropics/claude-code/issues/68900).

A body that goes back to its own protocol is not changed, because its own vendor validates it. The
only exception is a system message, if a policy moves it or the target's rules are enforced.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, NoReturn, cast

from msgspec import Struct, structs

from weft.catalog import Model
from weft.errors import Refused
from weft.model import (
    SYSTEM_ROLES,
    Block,
    Checkpoint,
    Ext,
    JsonObject,
    Loss,
    Message,
    Opaque,
    Position,
    Reminder,
    Request,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    is_system,
    side,
    texts,
)

from .base import CODECS, INLINE, Losses, SystemPolicy, as_object
from .pairing import NO_RESULT as NO_RESULT, Pairing, Turn, turn_of
from .reports import report_ext

CONTINUED = "(continued)"
"""The text of a user message that is added before the first or after the last answer."""


def refuse_empty_conversation(
    request: Request, turns: Sequence[Turn], losses: Sequence[Loss]
) -> None:
    """Raise `Refused` if nothing of the conversation is left; the error names the first loss.

    Vendors refuse an empty list. A compiled thread is not refused: its owner may look at any part
    of it.
    """
    if request.wire is None or any(_has_caller_block(turn) for turn in turns):
        return
    if all(is_system(message) or not message.blocks for message in request.messages):
        return
    first = next((loss for loss in losses if loss.level != "form"), None)
    if first is not None:
        reason = f"the first thing that cannot: {first.what} ({first.why})"
        raise Refused(
            f"nothing of this conversation can be sent to the target: {reason}", param=first.path
        )


def _has_caller_block(turn: Turn) -> bool:
    """Whether a turn has a block of the caller. An added block has the position of a message
    only."""
    if turn.stored_positions is None:
        return bool(turn.blocks)
    return any(len(position) > 1 for position in turn.stored_positions)


def opaque_to_text(block: Opaque) -> str | None:
    """The text in a vendor's own block that the model should read; `None` if there is none."""
    to_text = TEXT_READERS.get((block.protocol, str(block.raw.get("type"))))
    return to_text(block.raw) if to_text is not None else None


def _search_result(raw: JsonObject) -> str | None:
    """https://platform.claude.com/docs/en/build-with-claude/search-results"""
    text = _texts(raw)
    head = "\n".join(str(raw[key]) for key in ("title", "source") if raw.get(key))
    return f"{head}\n\n{text}" if head and text else text or None


def _agent_message(raw: JsonObject) -> str | None:
    """A message between two Codex agents. Its first line says so, lest it looks like the user's."""
    text = _texts(raw)
    author, recipient = raw.get("author"), raw.get("recipient")
    head = f"[message of the agent {author!r} to {recipient!r}, not of the user]"
    return f"{head}\n{text}" if text else None


def _texts(raw: JsonObject) -> str:
    content = raw.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    fields = [as_object(part) or {} for part in parts]
    texts = [part.get("text") or part.get("refusal") for part in fields]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


TEXT_READERS: dict[tuple[str, str], Callable[[JsonObject], str | None]] = {
    ("anthropic", "search_result"): _search_result,
    ("openai-responses", "agent_message"): _agent_message,
}


Check = Callable[[Any, Message, Request], str | None]
"""The loss code of a block that a protocol does not support, or `None` if it does."""


def block_name(block: Block, request: Request) -> str:
    """The block's name in the caller's protocol, or its type for a compiled thread."""
    if request.wire is None:
        return type(block).__name__.lower()
    return request.wire.part_name(block)


def replace_unsupported(
    block: Block, position: Position, code: str, request: Request, losses: Losses
) -> list[tuple[Block, Position]]:
    """The replacement of an unsupported block: its text, or nothing if it has none; reported."""
    name = block_name(block, request)
    text = opaque_to_text(block) if isinstance(block, Opaque) else None
    if text is None:
        losses.add(position, code, name)
        return []
    losses.add(position, "vendor_block_as_text", name)
    return [(Text(text), position)]


def decode_texts(parts: list[JsonObject] | str | None, kind: str) -> tuple[Text, ...] | None:
    """The parts of a JSON list if all are plain texts with this `type`, else `None`."""
    if type(parts) is not list:
        return None
    texts: list[Text] = []
    for part in parts:
        if type(part) is not dict or len(part) != 2 or part.get("type") != kind:
            return None
        text = part.get("text")
        if type(text) is not str:
            return None
        texts.append(Text(text))
    return tuple(texts)


def plain_texts(blocks: Sequence[Block]) -> list[str] | None:
    """The texts of these blocks; `None` if one is not a text, or has vendor members."""
    texts: list[str] = []
    for block in blocks:
        if type(block) is not Text or block.ext is not None:
            return None
        texts.append(block.text)
    return texts


def supported_result_parts(
    block: ToolResult,
    position: Position,
    request: Request,
    checks: Mapping[type, Check],
    protocol: str,
    losses: Losses,
) -> list[tuple[Block, Position]]:
    """The parts of a result that this protocol supports; the others are reported."""
    positions: list[Position] = [(*position, number) for number in range(len(block.content))]
    if plain_texts(block.content) is not None:
        return list(zip(block.content, positions, strict=True))
    message = request.messages[int(position[0])]
    supported: list[tuple[Block, Position]] = []
    for part, part_position in zip(block.content, positions, strict=True):
        check = checks.get(type(part))
        code = check(part, message, request) if check is not None else None
        if code is not None:
            supported += replace_unsupported(part, part_position, code, request, losses)
            continue
        supported.append((part, part_position))
        ext: Ext | None = getattr(part, "ext", None)
        if ext is not None:
            report_ext(ext, protocol, part_position, losses)
    return supported


EMPTY_MESSAGE_TEXT = "(empty)"
"""The text of a user message that would otherwise be empty."""

BILLING_PREFIX = "x-anthropic-billing-header:"

SYSTEM_TEXT = Text | Checkpoint | Reminder
"""The block types of a system message; reminders and checkpoints become text in every protocol."""

WRONG_SIDE: dict[tuple[str, type], str] = {
    ("user", ToolCall): "block_on_wrong_side",
    ("assistant", ToolResult): "block_on_wrong_side",
}


class Rules(Struct, frozen=True):
    """The requirements of a protocol for a list of messages.

    - `roles`: the roles of messages, besides system messages and `tool`.
    - `inline_system`: whether a system message may be among the messages: `native` anywhere,
      `placed` only between certain neighbours, `never` nowhere.
    - `checks`: for each block type that is not always supported, the function that decides.
    - `has_system_field`: leading system messages go into a field of their own.
    - `distinguishes_leading_system`: that field and a system message at the start of the list are
      not the same.
    - `allows_names`: a message may have the name of a participant.
    - `needs_user_first`: the first message must be the user's.
    - `allows_empty_text`: a text block may be empty.
    - `allows_trailing_space`: a prefill may end in whitespace.
    """

    protocol: str
    roles: frozenset[str]
    inline_system: Literal["native", "placed", "never"]
    checks: Mapping[type, Check]
    has_system_field: bool = False
    distinguishes_leading_system: bool = False
    allows_names: bool = False
    needs_user_first: bool = False
    allows_empty_text: bool = True
    allows_trailing_space: bool = True


class Arranged(Struct, frozen=True):
    """The leading system messages (empty if they stay in the list), and the turns."""

    system: list[Turn]
    turns: list[Turn]


def arrange(
    request: Request,
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    losses: Losses,
    enforce: bool = False,
) -> Arranged:
    """The turns of a request as this protocol accepts them; every change is reported.

    With `enforce`, the rules for system messages apply to a body of this protocol too.
    """
    native = request.wire is not None and request.wire.protocol == rules.protocol
    turns = [Turn(m.role, m, m.blocks, number) for number, m in enumerate(request.messages)]
    earlier_losses = len(losses.items)
    if not native:
        _show_vendor_summaries(turns, rules.protocol, losses)
    system = _remove_system(turns, policy, losses)
    if native:
        for turn in turns:  # a thread that was imported from a body may have other answers too
            origin = turn.message.origin
            if origin is not None and origin.protocol != rules.protocol:
                drop_unsupported(turn, request, rules, losses)
        if policy == "demote" or (enforce and policy == "auto" and rules.inline_system == "placed"):
            turns = _move_system_after_results(turns, losses)
        _place_system(turns, rules, model, policy, losses, native=not enforce)
    else:
        _report_leading_system(system, request, rules, losses)
        pairing = _make_valid(system, turns, request, rules, losses)
        turns = pairing.turns
        refuse_empty_conversation(request, turns, losses.items[earlier_losses:])
        if pairing.has_inline_system:
            _place_system(turns, rules, model, policy, losses, native=False)
        _fix_first_and_last_turn(turns, rules, model, losses)
    return Arranged(system, turns) if rules.has_system_field else Arranged([], system + turns)


def _fix_first_and_last_turn(turns: list[Turn], rules: Rules, model: Model, losses: Losses) -> None:
    """Make the user speak first and, if the model accepts no prefill, last."""
    if not turns:
        return
    first = turns[0]
    if rules.needs_user_first and first.role == "assistant" and not _is_compaction(first):
        losses.add(first.position, "turn_added", CONTINUED)
        turns.insert(0, _continued_turn(first.number))
    last = turns[-1]
    if last.role != "assistant":
        return
    if rules.needs_user_first and not model.prefill:
        losses.add(last.position, "turn_added", CONTINUED)
        turns.append(_continued_turn(last.number))
    elif not rules.allows_trailing_space:
        _strip_trailing_space(last, losses)


def _is_compaction(turn: Turn) -> bool:
    """Whether a turn starts with Anthropic's compaction block, before which nothing may come."""
    first = turn.blocks[0] if turn.blocks else None
    return isinstance(first, Opaque) and first.raw.get("type") == "compaction"


def _strip_trailing_space(turn: Turn, losses: Losses) -> None:
    last = turn.blocks[-1] if turn.blocks else None
    if not isinstance(last, Text) or last.text == last.text.rstrip():
        return
    *earlier, position = turn.positions
    losses.add(position, "trailing_space_dropped")
    stripped = structs.replace(last, text=last.text.rstrip())
    turn.set_blocks([*zip(turn.blocks[:-1], earlier, strict=True), (stripped, position)])


def _continued_turn(number: int) -> Turn:
    message = Message("user", (Text(CONTINUED),), form="text")
    return Turn("user", message, message.blocks, number, [(number,)])


VENDOR_SUMMARY_PREFIX = "[Summary of earlier messages. This is a record and not a request.]\n\n"


def _show_vendor_summaries(turns: Iterable[Turn], protocol: str, losses: Losses) -> None:
    """Turn the summary in another vendor's compaction block into text, if it is readable.

    An encrypted summary is dropped later, like any other block of another vendor:
    https://platform.claude.com/docs/en/build-with-claude/compaction
    """
    for turn in turns:
        for number, block in enumerate(turn.blocks):
            if type(block) is not Opaque or block.protocol == protocol:
                continue
            content = block.raw.get("content")
            if block.raw.get("type") == "compaction" and isinstance(content, str) and content:
                losses.add((turn.number, number), "vendor_block_as_text", "compaction")
                blocks = list(turn.blocks)
                blocks[number] = Text(VENDOR_SUMMARY_PREFIX + content)
                turn.blocks = tuple(blocks)


def _report_leading_system(
    system: list[Turn], request: Request, rules: Rules, losses: Losses
) -> None:
    """Report the system messages at the start of the list that move into the system field."""
    inline_count = sum(fields.get(INLINE, 0) for fields in request.raw.values())
    if inline_count and not rules.distinguishes_leading_system:
        for turn in system[-inline_count:]:
            losses.add(turn.position, "system_to_start")


def _make_valid(
    system: list[Turn], turns: list[Turn], request: Request, rules: Rules, losses: Losses
) -> Pairing:
    """The turns of another protocol's request as this protocol accepts them.

    Looks at each turn once: this is most of the work for a long conversation.
    """
    system[:] = [turn for turn in system if not _is_absent(turn, losses)]
    for turn in system:
        refuse_non_text(request, turn)
        _drop_billing_line(turn, losses)
        drop_unsupported(turn, request, rules, losses)
    result_parts = partial(
        supported_result_parts,
        request=request,
        checks=rules.checks,
        protocol=rules.protocol,
        losses=losses,
    )
    pairing = Pairing(losses, result_parts)
    for turn in turns:
        role = turn.message.role
        if not _reduce_if_common(turn, request, rules, losses):
            if role in SYSTEM_ROLES:
                if not _is_absent(turn, losses):
                    refuse_non_text(request, turn)
                    drop_unsupported(turn, request, rules, losses)
                    pairing.add_system(turn)
                continue
            if not _reduce_turn(turn, request, rules, losses):
                continue
        if role == "assistant":
            pairing.add_assistant(turn)
        elif not pairing.add_results(turn):
            pairing.add_user(turn)
    pairing.add_missing_results()
    return pairing


def _drop_billing_line(turn: Turn, losses: Losses) -> None:
    """Drop the line that Claude Code writes for billing.

    Claude Code sends it as a block of its own. Proxies and other protocols join it to the prompt.
    """
    remaining: list[tuple[Block, Position]] = []
    is_changed = False
    for block, position in zip(turn.blocks, turn.positions, strict=True):
        if isinstance(block, Text) and block.text.startswith(BILLING_PREFIX):
            losses.add(position, "billing_line_dropped")
            is_changed = True
            text = block.text.partition("\n")[2].lstrip("\n")
            if not text:
                continue
            block = structs.replace(block, text=text)
        remaining.append((block, position))
    if is_changed:
        turn.set_blocks(remaining)
        turn.message = structs.replace(turn.message, blocks=tuple(turn.blocks))


def _reduce_if_common(turn: Turn, request: Request, rules: Rules, losses: Losses) -> bool:
    """Drop unsupported thinking at the start of a turn. Returns whether the other blocks are text,
    calls and results that every protocol accepts unchanged.

    A shortcut for `_reduce_turn`, which is slower: it would not change such a turn further.
    """
    message, role, blocks = turn.message, turn.role, turn.blocks
    allows_empty_text = rules.allows_empty_text
    if not blocks or message.ext is not None or message.name is not None:
        return False
    if role not in rules.roles and role != "tool":
        return False
    is_assistant = role == "assistant"
    if is_assistant and type(blocks[0]) is Thinking:
        blocks = _drop_leading_thinking(turn, request, rules, losses)
        if not blocks:
            return False
    for block in blocks:
        if type(block) is Text:
            text = block.text
            if role == "tool" or not (allows_empty_text or (text and not text.isspace())):
                return False
        elif type(block) is ToolCall:
            if not is_assistant:
                return False
        elif is_assistant or type(block) is not ToolResult:
            return False
        if block.ext is not None:
            return False
    return True


def _drop_leading_thinking(
    turn: Turn, request: Request, rules: Rules, losses: Losses
) -> Sequence[Block]:
    """Drop unsupported thinking at the start of a turn; returns the other blocks.

    A shortcut for `drop_unsupported`: every answer of a reasoning model starts with thinking.
    """
    check, blocks, dropped = rules.checks[Thinking], turn.blocks, 0
    for block in blocks:
        if type(block) is not Thinking:
            break
        code = check(block, turn.message, request)
        if code is None:
            break
        losses.add((turn.number, dropped), code, block_name(block, request))
        dropped += 1
    turn.dropped = dropped
    turn.blocks = blocks[dropped:]
    return turn.blocks


def _reduce_turn(turn: Turn, request: Request, rules: Rules, losses: Losses) -> bool:
    """Drop the content that this protocol does not support; false if nothing is left."""
    if _is_absent(turn, losses):
        return False
    drop_unsupported(turn, request, rules, losses)
    if turn.role not in rules.roles and turn.role != "tool":
        losses.add(turn.position, "role_unsupported", f"{turn.role} -> user")
        turn.role = "user"
    elif turn.role == "tool" and _answers_nothing(turn):
        losses.add(turn.position, "tool_role_without_result", "tool -> user")
        turn.role = "user"
    return rules.allows_empty_text or _drop_empty_text(turn, losses)


def _answers_nothing(turn: Turn) -> bool:
    """Whether a `tool` message has text but no result; other protocols write that as user text."""
    kinds = {type(block) for block in turn.blocks}
    return Text in kinds and ToolResult not in kinds


def _is_absent(turn: Turn, losses: Losses) -> bool:
    """Whether a message has no content member; if so, reports that it is dropped."""
    message = turn.message
    if message.blocks or message.form != "absent":
        return False
    losses.add(turn.position, "empty_message_dropped", message.role)
    return True


def report_system_only(request: Request, losses: Losses) -> None:
    """Report that the target gets an empty list of messages, which it refuses.

    The conversation has only system messages, or none at all.
    """
    member = "messages"
    if request.wire is not None:
        member = CODECS[request.wire.protocol].conversation_member
    losses.add(member, "no_user_message")


def join_system_text(messages: Iterable[Message]) -> str | None:
    """System messages as one string: a blank line between messages, a newline between blocks."""
    parts = ("\n".join(text for text in texts(message.blocks) if text) for message in messages)
    return "\n\n".join(part for part in parts if part) or None


def refuse_system_media(request: Request) -> None:
    """Raise `Refused` if any system message of a request contains anything but text."""
    for number, message in enumerate(request.messages):
        if is_system(message):
            refuse_non_text(request, turn_of(number, message))


def refuse_non_text(request: Request, turn: Turn) -> None:
    """Raise `Refused` on the first block of a system message that is not text."""
    losses = Losses(request)
    for block, position in zip(turn.blocks, turn.positions, strict=True):
        if not isinstance(block, SYSTEM_TEXT):
            name_of = partial(block_name, request=request)
            refuse_system_block(block, turn.message.role, losses.path(position), name_of)


def refuse_system_block(
    block: Block, role: str, path: str, name_of: Callable[[Block], str]
) -> NoReturn:
    """Raise `Refused` for a block of a system message that is not text; `name_of` gives its name in
    the caller's protocol."""
    raise Refused(
        f"invalid {name_of(block)!r} content part in a {role} message: only text is allowed there",
        param=path,
    )


def _remove_system(turns: list[Turn], policy: SystemPolicy, losses: Losses) -> list[Turn]:
    """Remove the leading system messages from the turns and return them; all system messages if the
    policy merges them."""
    count = 0
    while count < len(turns) and is_system(turns[count].message):
        count += 1
    system = turns[:count]
    del turns[:count]
    if policy != "merge":
        return system
    later = [turn for turn in turns if is_system(turn.message)]
    for turn in later:
        losses.add(turn.position, "system_merged", turn.role)
    turns[:] = [turn for turn in turns if not is_system(turn.message)]
    return system + later


def drop_unsupported(turn: Turn, request: Request, rules: Rules, losses: Losses) -> None:
    """Drop blocks that this protocol does not support, and report them and all vendor members."""
    message = turn.message
    if message.ext is not None:
        report_ext(message.ext, rules.protocol, turn.position, losses)
    if message.name is not None and not rules.allows_names:
        losses.add(turn.position, "participant_name_dropped", message.name)
    supported: list[Block] = []
    indices: list[int] = []  # of the block in the turn, for each supported block
    checks, own_side = rules.checks, side(turn.role)
    is_changed = False
    for index, block in enumerate(turn.blocks):
        if type(block) is Text and block.ext is None:  # text is supported everywhere
            supported.append(block)
            indices.append(index)
            continue
        kind = type(block)
        check = checks.get(kind)
        if check is not None:
            code = check(block, message, request)
        else:
            code = WRONG_SIDE.get((own_side, kind))
        if code is None:
            ext: Ext | None = getattr(block, "ext", None)
            if ext is not None:
                report_ext(ext, rules.protocol, turn.position_of(index), losses)
            supported.append(block)
            indices.append(index)
            continue
        is_changed = True
        for replacement, _ in replace_unsupported(
            block, turn.position_of(index), code, request, losses
        ):
            supported.append(replacement)
            indices.append(index)
    if is_changed:
        turn.stored_positions = [turn.position_of(index) for index in indices]
        turn.blocks = supported


def report_dropped_message(turn: Turn, losses: Losses) -> None:
    """Report a message that is dropped because all its blocks were."""
    losses.add(turn.position, "message_dropped", turn.message.role)


def _drop_empty_text(turn: Turn, losses: Losses) -> bool:
    """Drop empty text; false if nothing is left. An empty user message gets a text instead."""
    if turn.blocks and not any(map(_is_blank, turn.blocks)):
        return True
    remaining: list[tuple[Block, Position]] = []
    for block, position in zip(turn.blocks, turn.positions, strict=True):
        if _is_blank(block):
            losses.add(position, "empty_text_dropped")
        else:
            remaining.append((block, position))
    turn.set_blocks(remaining)
    if remaining:
        return True
    if turn.role == "assistant":
        losses.add(turn.position, "empty_message_dropped", turn.role)
        return False
    losses.add(turn.position, "empty_message_filled", EMPTY_MESSAGE_TEXT)
    turn.set_blocks([(Text(EMPTY_MESSAGE_TEXT), turn.position)])
    return True


def _is_blank(block: Block) -> bool:
    return type(block) is Text and (not block.text or block.text.isspace())


def _move_system_after_results(turns: list[Turn], losses: Losses) -> list[Turn]:
    """The turns, with system messages between a call and its results moved after the results."""
    placed: list[Turn] = []
    postponed: list[Turn] = []
    waiting: set[str] = set()
    for turn in turns:
        if waiting and is_system(turn.message):
            postponed.append(turn)
            continue
        if turn.role == "assistant":
            placed += postponed
            postponed = []
            waiting |= {block.id for block in turn.blocks if isinstance(block, ToolCall)}
        placed.append(turn)
        waiting -= {block.call_id for block in turn.blocks if isinstance(block, ToolResult)}
        if not waiting:
            placed += postponed
            postponed = []
    placed += postponed
    for before, after in zip(turns, placed, strict=True):
        if before is not after and is_system(before.message):
            losses.add(before.position, "system_after_results", before.message.role)
    return placed


def _place_system(
    turns: list[Turn],
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    losses: Losses,
    *,
    native: bool,
) -> None:
    """Keep each run of later system messages, or turn its messages into user messages."""
    start = 0
    while start < len(turns):
        if turns[start].message.role not in SYSTEM_ROLES:
            start += 1
            continue
        end = start
        while end < len(turns) and is_system(turns[end].message):
            end += 1
        code = _demotion_code(turns, start, end, rules, model, policy, native)
        for turn in turns[start:end] if code else ():
            if not native and not rules.allows_empty_text and all(map(_is_blank, turn.blocks)):
                losses.add(turn.position, "empty_message_dropped", turn.role)
                turns.remove(turn)
                end -= 1
                continue
            losses.add(turn.position, code, f"{turn.role} -> user")
            turn.role = "user"
        start = end


def _demotion_code(
    turns: Sequence[Turn],
    start: int,
    end: int,
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    native: bool,
) -> str:
    """The loss code that says why a run of later system messages cannot stay, or `""`."""
    if policy == "demote":
        return "system_demoted_by_policy"
    if rules.inline_system == "never":
        return "system_demoted_for_protocol"
    if policy == "inline" or rules.inline_system == "native":
        return ""
    if model.inline_system == "never":
        return "system_demoted_for_model"
    if native:
        return ""
    # It must follow a user message, and an assistant message or nothing must follow it.
    if start == 0 or side(turns[start - 1].role) != "user":
        return "system_demoted_by_position"
    if end < len(turns) and turns[end].role != "assistant":
        return "system_demoted_by_position"
    return ""
