"""Make a list of messages valid for its target.

Each protocol states its requirements in `Rules`. `arrange` returns the turns to write, in order,
with the original position of each block. The rules, and the vendors that require them:

- Leading system messages leave the list: Anthropic refuses an inline system message at position 0.
- A later system message stays if the model and its neighbours allow it, else it becomes a `user`
  message: https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system
- Nothing comes between a call and its results: all vendors pair them by adjacency.
- Results come first in their turn, and results of parallel calls together: Anthropic, Gemini.
- A call without a result gets an error result, and a result without a call becomes text: all
  vendors refuse an unpaired id.
- Empty text is not sent: Anthropic says "text content blocks must be non-empty".
- The list does not begin with the assistant, and for some models does not end with it: Anthropic.
  A prefill may not end in white space: "final assistant content cannot end with trailing
  whitespace" (https://github.com/anomalyco/opencode/issues/1295).
- Signatures, file ids and blocks of another vendor are dropped. So is the billing line that Claude
  Code puts first: it differs in every request, so no prefix with it is ever found in a cache
  (https://github.com/anthropics/claude-code/issues/68900).

A body that goes back to its own protocol stays as it is; its vendor judges it. The only exception
are system messages, if a policy moves them or the target's rules are enforced.
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

from .base import CODECS, INLINE, Losses, SystemPolicy, members
from .pairing import NO_RESULT as NO_RESULT, Pairing, Turn, turn_of
from .reports import report_ext

CONTINUED = "(continued)"


def fix_first_and_last_turn(
    turns: list[Turn], model: Model, losses: Losses, *, user_first: bool, blank_end: bool
) -> None:
    """Make the user speak first and, if the model accepts no prefill, last."""
    if user_first and turns and turns[0].role == "assistant" and not _is_compaction(turns[0]):
        first = turns[0]
        losses.add(first.at, "turn_added", CONTINUED)
        turns.insert(0, _filler(first.number))
    if turns and turns[-1].role == "assistant" and user_first and not model.prefill:
        last = turns[-1]
        losses.add(
            last.at,
            "turn_added",
            CONTINUED,
        )
        turns.append(_filler(last.number))
    elif turns and turns[-1].role == "assistant" and not blank_end:
        _strip_trailing_space(turns[-1], losses)


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
    turn.keep([*zip(turn.blocks[:-1], earlier, strict=True), (stripped, position)])


def _filler(number: int) -> Turn:
    message = Message("user", (Text(CONTINUED),), form="text")
    return Turn("user", message, message.blocks, number, [(number,)])


def refuse_empty_conversation(
    request: Request, turns: Sequence[Turn], lost: Sequence[Loss]
) -> None:
    """Raise `Refused` if nothing of the conversation is left, at the first thing that was dropped.

    Vendors refuse an empty list, and a model asked about nothing gives no useful answer. A compiled
    thread is not refused: its owner may look at any part of it.
    """
    if request.wire is None or any(_has_caller_block(turn) for turn in turns):
        return
    if all(is_system(message) or not message.blocks for message in request.messages):
        return
    first = next((loss for loss in lost if loss.level == "meaning"), None)
    if first is not None:
        reason = f"the first thing that cannot: {first.what} ({first.why})"
        raise Refused(
            f"nothing of this conversation can be sent to the target: {reason}", param=first.path
        )


def _has_caller_block(turn: Turn) -> bool:
    """Whether a turn has a block of the caller; an added block has no position in the request."""
    if turn.moved is None:
        return bool(turn.blocks)
    return any(len(position) > 1 for position in turn.moved)


def opaque_to_text(block: Opaque) -> str | None:
    """The text of a vendor's own block, if it has text that the model was meant to read."""
    read = READERS.get((block.protocol, str(block.raw.get("type"))))
    return read(block.raw) if read is not None else None


def _search_result(raw: JsonObject) -> str | None:
    """https://platform.claude.com/docs/en/build-with-claude/search-results"""
    text = _texts(raw)
    head = "\n".join(str(raw[key]) for key in ("title", "source") if raw.get(key))
    return f"{head}\n\n{text}" if head and text else text or None


def _agent_message(raw: JsonObject) -> str | None:
    """A message between two Codex agents; it must not look like the user's."""
    text = _texts(raw)
    author, recipient = raw.get("author"), raw.get("recipient")
    head = f"[message of the agent {author!r} to {recipient!r}, not of the user]"
    return f"{head}\n{text}" if text else None


def _texts(raw: JsonObject) -> str:
    content = raw.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    fields = [members(part) or {} for part in parts]
    texts = [part.get("text") or part.get("refusal") for part in fields]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


READERS: dict[tuple[str, str], Callable[[JsonObject], str | None]] = {
    ("anthropic", "search_result"): _search_result,
    ("openai-responses", "agent_message"): _agent_message,
}


Check = Callable[[Any, Message, Request], str | None]
"""The loss code of a block that a protocol does not support, or `None` if it does."""


def block_name(block: Block, request: Request) -> str:
    """The block's name in the caller's protocol; our own name for a compiled thread."""
    if request.wire is None:
        return type(block).__name__.lower()
    return request.wire.part_name(block)


def leave_out(
    block: Block, position: Position, code: str, request: Request, losses: Losses
) -> list[tuple[Block, Position]]:
    """What is left of an unsupported block: its text, if it has any, or nothing."""
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
    for part, at in zip(block.content, positions, strict=True):
        check = checks.get(type(part))
        code = check(part, message, request) if check is not None else None
        if code is not None:
            supported += leave_out(part, at, code, request, losses)
            continue
        supported.append((part, at))
        ext: Ext | None = getattr(part, "ext", None)
        if ext is not None:
            report_ext(ext, protocol, at, losses)
    return supported


EMPTY = "(empty)"
BILLING = "x-anthropic-billing-header:"

SYSTEM_TEXT = Text | Checkpoint | Reminder
"""What a system message may contain; reminders and checkpoints are text in every protocol."""

WRONG_SIDE: dict[tuple[str, type], str] = {
    ("user", ToolCall): "block_on_wrong_side",
    ("assistant", ToolResult): "block_on_wrong_side",
}


class Rules(Struct, frozen=True):
    """The requirements of a protocol for a list of messages.

    `checks` has the block types that it does not always support. `hoists` is whether leading system
    messages go into a field before the list. `inline_lead` is whether it distinguishes that field
    from a system message at the start of the list. `blank_end` is whether a prefill may end in
    white space.
    """

    protocol: str
    roles: frozenset[str]
    inline_system: Literal["native", "placed", "never"]
    checks: Mapping[type, Check]
    hoists: bool = False
    named: bool = False
    user_first: bool = False
    empty_text: bool = True
    inline_lead: bool = False
    blank_end: bool = True


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
    earlier = len(losses.items)
    if not native:
        _show_vendor_summaries(turns, rules.protocol, losses)
    system = _take_system(turns, policy, losses)
    if native:
        if policy == "demote" or (enforce and policy == "auto" and rules.inline_system == "placed"):
            turns = _move_system_after_results(turns, losses)
        _place_system(turns, rules, model, policy, losses, native and not enforce)
    else:
        _report_inline_lead(system, request, rules, losses)
        paired = _make_valid(system, turns, request, rules, losses)
        turns = paired.turns
        refuse_empty_conversation(request, turns, losses.items[earlier:])
        if paired.inline:
            _place_system(turns, rules, model, policy, losses, native)
        fix_first_and_last_turn(
            turns, model, losses, user_first=rules.user_first, blank_end=rules.blank_end
        )
    return Arranged(system, turns) if rules.hoists else Arranged([], system + turns)


VENDOR_SUMMARY = "[Summary of earlier messages. This is a record and not a request.]\n\n"


def _show_vendor_summaries(turns: Iterable[Turn], protocol: str, losses: Losses) -> None:
    """Write the readable summary of another vendor's compaction as text.

    https://platform.claude.com/docs/en/build-with-claude/compaction. An encrypted one is dropped
    like any other block of another vendor.
    """
    for turn in turns:
        for number, block in enumerate(turn.blocks):
            if type(block) is not Opaque or block.protocol == protocol:
                continue
            content = block.raw.get("content")
            if block.raw.get("type") == "compaction" and isinstance(content, str) and content:
                losses.add((turn.number, number), "vendor_block_as_text", "compaction")
                blocks = list(turn.blocks)
                blocks[number] = Text(VENDOR_SUMMARY + content)
                turn.blocks = tuple(blocks)


def _report_inline_lead(system: list[Turn], request: Request, rules: Rules, losses: Losses) -> None:
    """Report system messages at the start of the list that move to the field before it."""
    inline = sum(fields.get(INLINE, 0) for fields in request.raw.values())
    for turn in system[-inline:] if inline and not rules.inline_lead else ():
        losses.add(turn.at, "system_to_start")


def _make_valid(
    system: list[Turn], turns: list[Turn], request: Request, rules: Rules, losses: Losses
) -> Pairing:
    """The turns of a foreign request as this protocol accepts them; looks at each turn once."""
    system[:] = [turn for turn in system if not _is_absent(turn, losses)]
    for turn in system:
        refuse_non_text(request, turn)
        _drop_billing_line(turn, losses)
        _drop_unsupported(turn, request, rules, losses)
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
        if not _is_common(turn, request, rules, losses):
            if role in SYSTEM_ROLES:
                if not _is_absent(turn, losses):
                    refuse_non_text(request, turn)
                    _drop_unsupported(turn, request, rules, losses)
                    pairing.system(turn)
                continue
            if not _reduce_turn(turn, request, rules, losses):
                continue
        if role == "assistant":
            pairing.assistant(turn)
        elif not pairing.answers(turn):
            pairing.user(turn)
    pairing.add_missing_results()
    return pairing


def _drop_billing_line(turn: Turn, losses: Losses) -> None:
    """Drop the line that Claude Code writes for billing.

    It is a block of its own there, but proxies and other protocols join it with the prompt.
    """
    remaining: list[tuple[Block, Position]] = []
    is_changed = False
    for block, position in zip(turn.blocks, turn.positions, strict=True):
        if isinstance(block, Text) and block.text.startswith(BILLING):
            losses.add(position, "billing_line_dropped")
            is_changed = True
            text = block.text.partition("\n")[2].lstrip("\n")
            if not text:
                continue
            block = structs.replace(block, text=text)
        remaining.append((block, position))
    if is_changed:
        turn.keep(remaining)
        turn.message = structs.replace(turn.message, blocks=tuple(turn.blocks))


def _is_common(turn: Turn, request: Request, rules: Rules, losses: Losses) -> bool:
    """Whether a turn has only text, calls and results that every protocol accepts unchanged.

    Unsupported thinking at its start is dropped first. Nearly all turns are common then, and skip
    the slower `_reduce_turn`, which would not change them.
    """
    message, role, blocks, empty_text = turn.message, turn.role, turn.blocks, rules.empty_text
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
            if role == "tool" or not (empty_text or (block.text and not block.text.isspace())):
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
    """Drop the thinking at the start of a turn, unless it is supported; returns the other blocks.

    Every answer of a reasoning model starts with thinking, so this shortcut for `_drop_unsupported`
    saves time.
    """
    check, blocks, first = rules.checks[Thinking], turn.blocks, 0
    for block in blocks:
        if type(block) is not Thinking:
            break
        code = check(block, turn.message, request)
        if code is None:
            break
        losses.add((turn.number, first), code, block_name(block, request))
        first += 1
    turn.first = first
    turn.blocks = blocks = blocks[first:]
    return blocks


def _reduce_turn(turn: Turn, request: Request, rules: Rules, losses: Losses) -> bool:
    """Drop the content that this protocol does not support; false if the turn is empty then."""
    if _is_absent(turn, losses):
        return False
    _drop_unsupported(turn, request, rules, losses)
    if turn.role not in rules.roles and turn.role != "tool":
        losses.add(turn.at, "role_unsupported", f"{turn.role} -> user")
        turn.role = "user"
    elif turn.role == "tool" and _answers_nothing(turn):
        losses.add(turn.at, "tool_role_without_result", "tool -> user")
        turn.role = "user"
    return rules.empty_text or _without_empty(turn, losses)


def _answers_nothing(turn: Turn) -> bool:
    """Whether a `tool` message has text but no result; in other protocols that is user text."""
    kinds = {type(block) for block in turn.blocks}
    return Text in kinds and ToolResult not in kinds


def _is_absent(turn: Turn, losses: Losses) -> bool:
    """Whether a message has no content member; if so, reports that it is dropped."""
    message = turn.message
    if message.blocks or message.form != "absent":
        return False
    losses.add(turn.at, "empty_message_dropped", message.role)
    return True


def report_system_only(request: Request, losses: Losses) -> None:
    """Report a conversation of system messages only, which the target refuses."""
    member = "messages"
    if request.wire is not None:
        member = CODECS[request.wire.protocol].conversation
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
    """Refuse a block of a system message that is not text, by its name in the caller's protocol."""
    raise Refused(
        f"invalid {name_of(block)!r} content part in a {role} message: only text is allowed there",
        param=path,
    )


def _take_system(turns: list[Turn], policy: SystemPolicy, losses: Losses) -> list[Turn]:
    """Remove the leading system messages from the turns, or all of them if the policy merges."""
    lead = 0
    while lead < len(turns) and is_system(turns[lead].message):
        lead += 1
    system = turns[:lead]
    del turns[:lead]
    if policy != "merge":
        return system
    later = [turn for turn in turns if is_system(turn.message)]
    for turn in later:
        losses.add(turn.at, "system_merged", turn.role)
    turns[:] = [turn for turn in turns if not is_system(turn.message)]
    return system + later


def _drop_unsupported(turn: Turn, request: Request, rules: Rules, losses: Losses) -> None:
    """Drop blocks that this protocol does not support, and report other protocols' members."""
    message = turn.message
    if message.ext is not None:
        report_ext(message.ext, rules.protocol, turn.at, losses)
    if message.name is not None and not rules.named:
        losses.add(turn.at, "participant_name_dropped", message.name)
    supported: list[Block] = []
    numbers: list[int] = []
    checks, own_side = rules.checks, side(turn.role)
    changed = False
    for at, block in enumerate(turn.blocks):
        if type(block) is Text and block.ext is None:  # text is supported everywhere
            supported.append(block)
            numbers.append(at)
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
                report_ext(ext, rules.protocol, turn.position_of(at), losses)
            supported.append(block)
            numbers.append(at)
            continue
        changed = True
        for replacement, _ in leave_out(block, turn.position_of(at), code, request, losses):
            supported.append(replacement)
            numbers.append(at)
    if changed:
        turn.moved = [turn.position_of(at) for at in numbers]
        turn.blocks = supported


def report_dropped_message(turn: Turn, losses: Losses) -> None:
    """Report a message that is dropped because all its blocks were."""
    losses.add(turn.at, "message_dropped", turn.message.role)


def _without_empty(turn: Turn, losses: Losses) -> bool:
    """Drop empty text from a turn; false if nothing is left of it."""
    if turn.blocks and not any(map(_is_blank, turn.blocks)):
        return True
    remaining: list[tuple[Block, Position]] = []
    for block, position in zip(turn.blocks, turn.positions, strict=True):
        if _is_blank(block):
            losses.add(position, "empty_text_dropped")
        else:
            remaining.append((block, position))
    turn.keep(remaining)
    if remaining:
        return True
    if turn.role == "assistant":
        losses.add(turn.at, "empty_message_dropped", turn.role)
        return False
    losses.add(turn.at, "empty_message_filled", EMPTY)
    turn.keep([(Text(EMPTY), turn.at)])
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
            losses.add(before.at, "system_after_results", before.message.role)
    return placed


def _place_system(
    turns: list[Turn],
    rules: Rules,
    model: Model,
    policy: SystemPolicy,
    losses: Losses,
    native: bool,
) -> None:
    """Keep each run of later system messages inline, or turn it into user messages."""
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
            if not native and not rules.empty_text and all(map(_is_blank, turn.blocks)):
                losses.add(turn.at, "empty_message_dropped", turn.role)
                turns.remove(turn)
                end -= 1
                continue
            losses.add(turn.at, code, f"{turn.role} -> user")
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
    """The loss code that says why a run of system messages cannot stay inline, or `""`."""
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
    if start == 0 or side(turns[start - 1].role) != "user":
        return "system_demoted_by_position"
    if end < len(turns) and turns[end].role != "assistant":
        return "system_demoted_by_position"
    return ""
