"""Checkpoints, and the tools with which an agent manages its own context window.

A checkpoint is an address inside a thread that a model can name. Its id is six characters of
`[a-z0-9]`, a hash of the parent commit and the text, with a counter for collisions. So the same
thread, replayed, has the same ids, and the core needs no randomness. `taken` makes an id unique
over all branches of a thread.

In a request a checkpoint is an ordinary text block. Reading one back is guarded twice: the whole
block must be the marker, and the id must be one of this thread. A marker inside a sentence, or from
another thread, stays text.

The tools are `compact`, `compact_context` and `recall`. One definition is converted to each
vendor's format. The description is all that a model knows about the tool, so it says when and how
to use it and what a good summary contains. The input is checked by hand and not by a schema
library, because the error goes back to the model: it names the field (`replacements[1].summary`)
and says what to write instead.
"""

from collections.abc import Mapping, Sequence, Set
from typing import Any, cast

from msgspec import Struct, field, structs

from weft import exact_json
from weft.checked import checked_function
from weft.errors import CompactRefused, ThreadError
from weft.ids import object_id
from weft.lazy import lazy_pattern
from weft.model import Block, Checkpoint, JsonObject, Message, Text, Tool

ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
ID_LENGTH = 6

_ID = lazy_pattern(rf"[a-z0-9]{{{ID_LENGTH}}}")
_MARKER = lazy_pattern(rf"<checkpoint:([a-z0-9]{{{ID_LENGTH}}})>")


@checked_function
def generate_checkpoint_id(parent: str, text: str, taken: Set[str]) -> str:
    """A checkpoint id, computed from the id of the parent commit and the text of the message.

    It is never one of `taken`.
    """
    position = f"{len(parent)}:{parent}{text}".encode("utf-8", "surrogatepass")
    counter = 0
    while True:
        digest = object_id("checkpoint", b"%d:%b" % (counter, position))
        id = _encode_id(int.from_bytes(digest, "big"))
        if id not in taken:
            return id
        counter += 1


@checked_function
def create_checkpoint_content(id: str) -> Checkpoint:
    """The checkpoint block with this id; raises `ThreadError` if the id is invalid."""
    if not _ID.fullmatch(id):
        raise ThreadError(f"{id!r} is not a checkpoint id: it needs six characters of a-z and 0-9")
    return Checkpoint(id)


def read_checkpoint(block: Block, known: Set[str]) -> Block:
    """The checkpoint that a text block represents, or else the block."""
    if isinstance(block, Text) and block.ext is None:
        marker = _MARKER.fullmatch(block.text)
        if marker and marker[1] in known:
            return Checkpoint(marker[1])
    return block


def read_checkpoints(message: Message, known: Set[str]) -> Message:
    """A received message with its markers as `Checkpoint`s; the same object if it has none."""
    blocks = tuple(read_checkpoint(block, known) for block in message.blocks)
    if blocks == message.blocks:
        return message
    return structs.replace(message, blocks=blocks, form="list")


def checkpoint_id(text: str) -> str:
    """The id that a model wrote, either alone or as the whole marker."""
    marker = _MARKER.fullmatch(text)
    return marker[1] if marker else text


def _encode_id(number: int) -> str:
    """Six characters of `ALPHABET`: the last digits of a number in base 36, the last one first."""
    characters: list[str] = []
    for _ in range(ID_LENGTH):
        number, digit = divmod(number, len(ALPHABET))
        characters.append(ALPHABET[digit])
    return "".join(characters)


class Replacement(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A range to replace with a summary: the blocks after `from`, up to and including `to`."""

    summary: str
    from_: str | None = field(default=None, name="from")
    to: str | None = None


class ToolDefinition(Struct, frozen=True):
    """A tool definition that can be written in each vendor's format."""

    name: str
    description: str
    parameters: JsonObject

    def to_openai(self) -> JsonObject:
        """For `tools` of Chat Completions."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}

    def to_anthropic(self) -> JsonObject:
        """For `tools` of Messages."""
        return {
            "name": self.name,
            "description": self.description,
            "input_schema": self.parameters,
        }

    def to_responses(self) -> JsonObject:
        """For `tools` of Responses.

        It is not strict, because strict mode allows no optional properties.
        """
        return {
            "type": "function",
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
            "strict": False,
        }

    def to_gemini(self) -> JsonObject:
        """For `tools` of generateContent."""
        declaration = {
            "name": self.name,
            "description": self.description,
            "parametersJsonSchema": self.parameters,
        }
        return {"functionDeclarations": [declaration]}

    def to_tool(self) -> Tool:
        """For `Request.tools`."""
        return Tool(self.name, self.description, self.parameters)


COMPACT_TOOL = ToolDefinition(
    "compact",
    """\
Shorten this conversation by replacing ranges of it with summaries that you write.

When to use it: when the thread has grown long and much of it will not be needed word for word \
again: finished steps, long tool outputs whose point you have taken, files you have read and can \
read again, dead ends, the same thing tried several times. Do it at a natural pause, when one \
piece of work is done and the next has not begun. Do not compact what you are working on now, and \
do not compact a short thread: it saves nothing.

How checkpoints work: every user turn, and every turn of tool results, ends with a marker like \
<checkpoint:ab12cd>. `ab12cd` is an address in this thread. A replacement takes everything after \
the checkpoint `from` up to and including the checkpoint `to`, and puts your `summary` there as \
one assistant message. Without `from` it begins at the start of the thread; without `to` it runs \
to the end, including your latest turn. An empty summary deletes the range. Several ranges may be \
given at once; they must not overlap, but one may end where the next begins. System messages and \
pinned messages are always kept. Checkpoints outside the ranges stay valid; those inside are \
gone. Use only ids that you see in this thread: an unknown one is refused and nothing changes.

How to write a good summary: it is all that will be left of the range, so write it for someone \
who has read nothing else. Keep what the user asked for and every constraint they set, in their \
own words; decisions and why they were taken; the present state of the work and the next step; \
exact file paths, names, commands, ids, numbers and error messages; what was tried and failed. \
Leave out greetings, restated plans, file contents that can be read again, and narration of how \
you got there. Never write a name, path or figure that is not in the range. Keep the most recent \
exchanges as they are.

After it runs the call is replaced by the words "I compacted the thread", there is no result to \
wait for, and you carry on with the work. The originals stay in the thread's history: a person \
can bring them back, and you can look them up with `recall` where you have it.""",
    {
        "type": "object",
        "properties": {
            "replacements": {
                "type": "array",
                "minItems": 1,
                "description": "The ranges to replace; any order, no overlap.",
                "items": {
                    "type": "object",
                    "properties": {
                        "from": {
                            "type": "string",
                            "description": "Checkpoint id after which the range begins. "
                            "Leave out for the start of the thread.",
                        },
                        "to": {
                            "type": "string",
                            "description": "Checkpoint id at which the range ends, included. "
                            "Leave out for the end of the thread.",
                        },
                        "summary": {
                            "type": "string",
                            "description": "What stands for the range from now on. "
                            "Empty deletes it.",
                        },
                    },
                    "required": ["summary"],
                    "additionalProperties": False,
                },
            }
        },
        "required": ["replacements"],
        "additionalProperties": False,
    },
)

RECALL_TOOL = ToolDefinition(
    "recall",
    """\
Look up what was said earlier in this thread, including everything that a compaction has folded \
away. Use it when a summary mentions something whose exact words, code, figures or error text you \
need again, instead of guessing or asking the user to repeat it, or when a tool result says that \
it was shortened. Give a question or words that stood in the original (a file name, an identifier, \
a phrase), the id of a message, or the handle that a shortened result names. `path`, `since` and \
`until` narrow it down. The answer quotes the best matches, as much as fits; where there is more, \
it ends with the offset that reads on. It changes nothing in the thread.""",
    {
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "description": "Words that occur in the original, a message id, or a handle.",
            },
            "offset": {
                "type": "integer",
                "minimum": 0,
                "description": "Where to read on: the number that the last answer ended with.",
            },
            "path": {
                "type": "string",
                "description": "Only messages that mention this file path, or the end of one.",
            },
            "since": {
                "type": "string",
                "description": "Only messages from this time on, such as 2026-01-31.",
            },
            "until": {
                "type": "string",
                "description": "Only messages up to this time, such as 2026-01-31T12:00.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
)

COMPACT_CONTEXT_TOOL = ToolDefinition(
    "compact_context",
    """\
Shorten this conversation now: older turns are replaced by a summary that is written for you, and \
the most recent ones stay as they are. Use it at a natural pause when the thread has grown long, \
if you do not want to write the summary yourself. It takes no input. The result says how many \
tokens are left. The originals stay in the thread's history, where `recall` finds them.""",
    {"type": "object", "properties": {}, "additionalProperties": False},
)

_FIELDS = ("from", "to", "summary")


def validate_compact_input(input: object) -> tuple[Replacement, ...]:
    """The replacements in a tool call's input (text or object); raises `CompactRefused`."""
    members = _read_object(_parse_json(input), "input")
    for name in members:
        if name != "replacements":
            raise CompactRefused(f"unknown field {name!r}", field=str(name))
    if "replacements" not in members:
        raise CompactRefused("is missing; give a list of ranges", field="replacements")
    items = members["replacements"]
    if isinstance(items, str | bytes) or not isinstance(items, Sequence):
        raise CompactRefused(f"must be a list, not {_json_kind(items)}", field="replacements")
    if not items:
        raise CompactRefused("is empty; give at least one range", field="replacements")
    ranges = cast(Sequence[object], items)
    return tuple(_read_replacement(item, f"replacements[{n}]") for n, item in enumerate(ranges))


def _parse_json(input: object) -> object:
    """The JSON value of a text; any other object unchanged."""
    if not isinstance(input, str | bytes):
        return input
    try:
        return exact_json.loads(input)
    except exact_json.JSONDecodeError as error:
        raise CompactRefused(f"is not JSON: {error}", field="input") from None


def _read_replacement(item: object, path: str) -> Replacement:
    if isinstance(item, Replacement):
        item = {"from": item.from_, "to": item.to, "summary": item.summary}
    members = _read_object(item, path)
    for name in members:
        if name not in _FIELDS:
            fields = "`from`, `to` and `summary`"
            raise CompactRefused(f"unknown field; a range has {fields}", field=f"{path}.{name}")
    summary = members.get("summary")
    if "summary" not in members:
        raise CompactRefused("is missing; an empty text deletes the range", field=f"{path}.summary")
    if not isinstance(summary, str):
        raise CompactRefused(f"must be a text, not {_json_kind(summary)}", field=f"{path}.summary")
    return Replacement(
        summary=summary,
        from_=_read_checkpoint_id(members.get("from"), f"{path}.from"),
        to=_read_checkpoint_id(members.get("to"), f"{path}.to"),
    )


def _read_checkpoint_id(value: object, path: str) -> str | None:
    """A checkpoint id. `null` means absent, because strict callers must send every member."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise CompactRefused(f"must be a checkpoint id, not {_json_kind(value)}", field=path)
    if not value:
        raise CompactRefused("is empty; leave it out to mean the thread's edge", field=path)
    return checkpoint_id(value)


def _read_object(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise CompactRefused(f"must be an object, not {_json_kind(value)}", field=path)
    return cast(Mapping[str, Any], value)


_JSON_KINDS: dict[type, str] = {
    str: "a text",
    bool: "a boolean",
    int: "a number",
    float: "a number",
    list: "a list",
    tuple: "a list",
    dict: "an object",
    type(None): "null",
}


def _json_kind(value: object) -> str:
    return _JSON_KINDS.get(type(value), type(value).__name__)
