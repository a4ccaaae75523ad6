"""Requests to and from generateContent: https://ai.google.dev/api/generate-content

- The model is in the URL, not in the body.
- `systemInstruction` is decoded to the first message. In a request to Gemini, the leading system
  and developer messages become its parts. Later ones become user messages, because `contents` has
  no system role.
- The spelling of a body (`functionCall` or `function_call`, a list or its only item, a missing
  role) has no meaning. It is kept in `raw`, under `@form`.

`write_messages` writes messages outside of a request, for an unknown model.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from weft.catalog import load_catalog
from weft.codec.base import Encoded, Locate, Losses, RenamedTools, Target, as_object
from weft.codec.read import (
    object_of,
    objects,
    optional,
    path_prefix,
    text_of,
    unknown_members,
    with_prefix,
    wrong,
)
from weft.codec.repair import Arranged, Rules, Turn, arrange, join_system_text, report_system_only
from weft.codec.reports import report_tool_members
from weft.codec.tools import (
    CALLABLE,
    can_define,
    flatten_tools,
    is_search,
    schema_of,
    search_members,
)
from weft.errors import Refused
from weft.model import (
    Block,
    Form,
    JsonObject,
    Message,
    Opaque,
    Position,
    Request,
    Text,
    Tool,
    ToolCall,
    Wire,
)

from .blocks import CHECKS, ContentWriter, PartReader, Writer, part_name
from .fields import FIELDS, decode_params, encode_params, json_schema, require_model
from .spelling import camel, camel_members, read_spelling, write_spelling
from .wire import DECODED_MEMBERS, FORM, GEMINI_ROLES, PROTOCOL, ROLES

# Tool definitions: https://ai.google.dev/api/caching#Tool
#
# One entry of `tools` may contain many function declarations, and Google's own tools too. Each of
# them is decoded to one `Tool`. The layout of the entries is stored, because a round trip must
# restore it.

DECLARATIONS = "functionDeclarations"
SEARCH = "googleSearch"
"""Before Gemini 3 it is refused in one request with functions ("Tool use with function calling is
unsupported"): https://github.com/googleapis/js-genai/issues/435"""

ToolLayout = list[dict[str, int]]
"""For each entry of `tools`: the number of tools in each of its members, in the original spelling.
"""


def decode_tools(body: JsonObject, form: JsonObject, unmapped: dict[str, Any]) -> tuple[Tool, ...]:
    """Decode the tools; adds their layout to `form`, and lost values to `unmapped`."""
    raws = body.get("tools")
    if raws is None:
        return ()
    single = as_object(raws)  # Gemini accepts one entry instead of a list
    if single is not None:
        form["tools.single"] = True
        raws = [single]
    tools: list[Tool] = []
    layout: ToolLayout = []
    for number, entry in enumerate(objects(raws, "tools")):
        tool_counts: dict[str, int] = {}
        if not entry:
            unmapped[f"tools[{number}]"] = {}
        for key, value in entry.items():
            if camel(key) != DECLARATIONS or value is None:
                tool_counts[key] = 1
                tools.append(Tool(camel(key), kind=camel(key), raw={PROTOCOL: {key: value}}))
                continue
            with path_prefix(f"tools[{number}]"):
                declarations = objects(value, key)
            tool_counts[key] = len(declarations)
            if not declarations:
                unmapped[f"tools[{number}].{key}"] = []
            for index, raw in enumerate(declarations):
                path = f"tools[{number}].{key}[{index}]"
                with path_prefix(path):
                    tools.append(_decode_declaration(raw))
                if as_object(raw.get("parameters")) is not None:
                    unmapped[f"{path}.parameters"] = None  # only its dialect is lost
        layout.append(tool_counts)
    form["tools"] = layout
    if not layout:
        unmapped["tools"] = []
    elif not _is_default(layout):
        unmapped["tools"] = None  # only the grouping of the tools is lost
    return tuple(tools)


def _is_default(layout: ToolLayout) -> bool:
    """Whether it is the layout that `write_tools` writes: declarations, then one tool per entry."""
    return all(
        len(tool_counts) == 1 and (number == 0 or camel(next(iter(tool_counts))) != DECLARATIONS)
        for number, tool_counts in enumerate(layout)
    )


def _decode_declaration(raw: JsonObject) -> Tool:
    fields = camel_members(raw)
    schema = object_of(fields, "parametersJsonSchema")
    if schema is None and (google_schema := as_object(fields.get("parameters"))) is not None:
        schema = json_schema(google_schema)
    return Tool(
        text_of(fields, "name"),
        optional(fields, "description", str),
        schema,
        raw={PROTOCOL: raw},
    )


def tool_path(layout: ToolLayout, number: int) -> str:
    """The path in the caller's body of the tool with this number."""
    for entry, tool_counts in enumerate(layout):
        for key, count in tool_counts.items():
            if number < count:
                index = f"[{number}]" if camel(key) == DECLARATIONS else ""
                return f"tools[{entry}].{key}{index}"
            number -= count
    return "tools"


def write_tools(request: Request, losses: Losses) -> Any:
    """The `tools` member, or `None` if the body has none."""
    form = request.raw.get(PROTOCOL, {}).get(FORM, {})
    layout = cast("ToolLayout | None", form.get("tools"))
    tools = request.tools
    has_functions = any(tool.kind in CALLABLE for tool in tools)
    definitions = [
        _write_tool(tool, number, has_functions, losses) for number, tool in enumerate(tools)
    ]
    if layout is not None and _tool_count(layout) == len(tools):
        entries = _restore_layout(tools, definitions, layout)
        return entries[0] if form.get("tools.single") and len(entries) == 1 else entries
    declarations: list[JsonObject] = []
    others: list[JsonObject] = []
    for definition in definitions:
        if definition is not None:
            (declarations if "name" in definition else others).append(definition)
    entries = [{DECLARATIONS: declarations}] if declarations else []
    return entries + others or None


def _tool_count(layout: ToolLayout) -> int:
    return sum(sum(tool_counts.values()) for tool_counts in layout)


def _restore_layout(
    tools: tuple[Tool, ...], definitions: list[JsonObject | None], layout: ToolLayout
) -> list[JsonObject]:
    """The entries of `tools` with their original members."""
    entries: list[JsonObject] = []
    first = 0
    for tool_counts in layout:
        entry: JsonObject = {}
        for key, count in tool_counts.items():
            written = [item for item in definitions[first : first + count] if item is not None]
            is_null = count == 1 and tools[first].kind == DECLARATIONS
            if camel(key) == DECLARATIONS and not is_null:
                entry[key] = written
            elif written:
                entry.update(written[0])
            first += count
        entries.append(entry)
    return entries


def _write_tool(tool: Tool, number: int, has_functions: bool, losses: Losses) -> JsonObject | None:
    """A function declaration or an entry with one of Google's tools; `None` if it is dropped."""
    definition = (tool.raw or {}).get(PROTOCOL)
    if definition is not None:
        return dict(definition)
    if is_search(tool) and has_functions:
        losses.add(("tools", number), "web_search_excluded_by_tools")
        return None
    if is_search(tool):
        search_members(tool, number, frozenset(), losses)
        return {SEARCH: {}}
    if not can_define(tool, number, losses):
        return None
    report_tool_members(tool, number, losses)
    if tool.strict is not None:
        losses.add(("tools", number), "tool_strict_dropped", str(tool.strict).lower())
    body: JsonObject = {"name": tool.name}
    if tool.description is not None:
        body["description"] = tool.description
    if tool.parameters:
        body["parametersJsonSchema"] = schema_of(tool, number, losses)
    return body


CONTENT = frozenset({"role", "parts"})
USUAL_ROLES = ("user", "model")
"""Roles that the encoder writes itself; any other role is noted in the form."""

USER = {"role": "user"}
"""The members of `systemInstruction` beside its parts, as Google's SDK writes them."""

SYSTEM_KEY = "systemInstruction"
SYSTEM_KEYS = (SYSTEM_KEY, "system_instruction")
NULLABLE = frozenset({*SYSTEM_KEYS, "tools"})
"""Members that may be null, which means the same as absent."""

RULES = Rules(
    protocol=PROTOCOL,
    roles=frozenset({"user", "assistant"}),
    inline_system="never",
    checks=CHECKS,
    has_system_field=True,
    needs_user_first=True,
    allows_empty_text=False,
)


def decode_request(body: JsonObject, model: str | None = None) -> Request:
    """Decode a request body; raises `Refused` with the path of an invalid member."""
    form: JsonObject = {}
    reader = PartReader()
    messages: list[Message] = []
    params, unmapped = decode_params(body)
    system_key = next((key for key in SYSTEM_KEYS if body.get(key) is not None), None)
    if system_key is not None:
        messages.append(_decode_system(body, system_key, reader, form))
        unmapped |= _unmapped_system_members(system_key, form)
    for number, raw in enumerate(_contents(body, form)):
        try:
            messages.append(_decode_content(raw, number, reader, form))
            if messages[-1].role == "user" and not raw.get("role"):
                unmapped[f"contents[{number}].role"] = None  # the default role is `user`
        except Refused as error:
            raise with_prefix(f"contents[{number}]", error) from None
    tools = decode_tools(body, form, unmapped)
    raw_members = {
        key: value
        for key, value in body.items()
        if key not in DECODED_MEMBERS or (value is None and key in NULLABLE)
    }
    if form:
        raw_members[FORM] = form
    return Request(
        model=require_model(model),
        messages=tuple(messages),
        tools=tools,
        params=params,
        raw={PROTOCOL: raw_members},
        rest=unmapped,
        wire=Wire(PROTOCOL, _locator(body, system_key, form), part_name),
    )


def _contents(body: JsonObject, form: JsonObject) -> list[JsonObject]:
    """The contents as a list; adds to `form` how they were written, if it was not a list."""
    if "contents" not in body:
        form["contents"] = "absent"
        return []
    contents = body["contents"]
    if isinstance(contents, dict):  # Gemini accepts one content instead of a list
        form["contents"] = "single"
        return [cast(JsonObject, contents)]
    return objects(contents, "contents")


def _decode_content(raw: JsonObject, number: int, reader: PartReader, form: JsonObject) -> Message:
    path = f"contents[{number}]"
    blocks, parts_form = _decode_parts(raw, number, path, reader, form)
    role = raw.get("role")
    if len(raw) == 2 and type(role) is str and role in USUAL_ROLES and "parts" in raw:
        return Message(ROLES[role], blocks, None, None, parts_form)  # nearly all contents
    role = optional(raw, "role", str)
    if role not in USUAL_ROLES:
        form[f"{path}.role"] = [role] if "role" in raw else []
    message_role = "user" if role is None else ROLES.get(role, role)
    return Message(
        message_role, blocks, form=parts_form, ext=unknown_members(raw, CONTENT, PROTOCOL)
    )


def _decode_system(body: JsonObject, key: str, reader: PartReader, form: JsonObject) -> Message:
    raw = body[key]
    if key != SYSTEM_KEY:
        form[SYSTEM_KEY] = key
    if isinstance(raw, str):
        return Message("system", (Text(raw),) if raw else (), form="text")
    content = as_object(raw)
    if content is None:
        raise wrong(key, raw, "an object")
    try:
        blocks, parts_form = _decode_parts(content, 0, SYSTEM_KEY, reader, form)
    except Refused as error:
        raise with_prefix(key, error) from None
    other_members = {name: value for name, value in content.items() if name != "parts"}
    if other_members != USER:
        form[f"{SYSTEM_KEY}.rest"] = other_members
    return Message("system", blocks, form=parts_form)


def _unmapped_system_members(system_key: str, form: JsonObject) -> dict[str, Any]:
    """The members of the system instruction that other protocols lose, by path."""
    members = form.get(f"{SYSTEM_KEY}.rest")
    if members is None:
        return {}
    unmapped = {f"{system_key}.{key}": value for key, value in members.items() if key != "role"}
    if members.get("role") != USER["role"]:
        unmapped[f"{system_key}.role"] = None  # only the form is lost: the role has no effect
    return unmapped


def _decode_parts(
    raw: JsonObject, number: int, path: str, reader: PartReader, form: JsonObject
) -> tuple[tuple[Block, ...], Form]:
    """The blocks of a content and how its parts were written; adds their spelling to `form`."""
    parts = raw.get("parts")
    if parts is None:
        return (), "null" if "parts" in raw else "absent"
    single = as_object(parts)
    if single is not None:
        form[f"{path}.parts"] = "single"
        parts = [single]
    blocks: list[Block] = []
    for index, part in enumerate(objects(parts, "parts")):
        common = reader.common_part(part)
        if common is not None:
            blocks.append(common)
            continue
        camel_part, spelling = read_spelling(part)
        try:
            block = reader.part(camel_part, number, index)
        except Refused as error:
            raise with_prefix(f"parts[{index}]", error) from None
        if spelling is not None:
            if isinstance(block, Opaque):
                block = Opaque(PROTOCOL, part)
            else:
                form[f"{path}.parts[{index}]"] = spelling
        blocks.append(block)
    return tuple(blocks), ""


def _locator(body: JsonObject, system_key: str | None, form: JsonObject) -> Locate:
    """Paths in the caller's body; computed only when a loss is reported."""
    offset = 0 if system_key is None else 1

    def locate(position: Position) -> str:
        if len(position) == 2 and type(number := position[0]) is int and number >= offset:
            return f"contents[{number - offset}].parts[{position[1]}]"  # the common case
        match position:
            case ("tools", int(number)):
                return tool_path(form.get("tools", []), number)
            case ("params", str(name)):
                return FIELDS.path(name, body)
            case (int(number), *steps):
                holder = f"contents[{number - offset}]"
                if system_key is not None and number < offset:
                    holder = system_key
                    steps = [] if isinstance(body.get(system_key), str) else steps
                return holder + (f".parts[{steps[0]}]" if steps else "")
            case _:
                return ""

    return locate


def encode_request(request: Request, target: Target) -> Encoded:
    """The body for Gemini, and the losses."""
    losses = Losses(request)
    native = PROTOCOL in request.raw
    renamed_tools: RenamedTools = {}
    if not native:
        request, renamed_tools = flatten_tools(request, losses, custom=False, namespaces=False)
    form: Mapping[str, Any] = request.raw.get(PROTOCOL, {}).get(FORM, {})
    body = encode_params(request, target, losses)
    arranged = arrange(request, RULES, target.model, target.system, losses)
    writer = Writer(target, losses, {} if native else _calls(request), native=native)
    _write_system(arranged, writer, target, native, form, body)
    tools = write_tools(request, losses)
    if tools is not None:
        body["tools"] = tools
    contents: list[JsonObject]
    if native:
        offset = _system_count(request, len(arranged.turns))
        contents = [
            _write_native(turn, turn.number - offset, writer, form) for turn in arranged.turns
        ]
    else:
        contents = ContentWriter(request, target, writer, losses).contents(arranged.turns)
        for position in request.marks:
            losses.add(position, "cache_breakpoint_dropped")
        if not contents:
            report_system_only(request, losses)
    single = form.get("contents") == "single" and len(contents) == 1
    if contents or form.get("contents") != "absent":
        body["contents"] = contents[0] if single else contents
    return Encoded(body, losses.items, renamed_tools)


def _calls(request: Request) -> dict[str, ToolCall]:
    """All calls by id; a result must repeat the name of its call."""
    return {
        block.id: block
        for message in request.messages
        for block in message.blocks
        if type(block) is ToolCall
    }


def _write_system(
    arranged: Arranged,
    writer: Writer,
    target: Target,
    native: bool,
    form: Mapping[str, Any],
    body: JsonObject,
) -> None:
    """Add the system instruction to `body`, if there is one."""
    turns = arranged.system
    if not turns:
        return
    key = form.get(SYSTEM_KEY, SYSTEM_KEY)
    if target.system == "merge":
        text = join_system_text(turn.message for turn in turns)
        if text is not None:
            body[key] = {"parts": [{"text": text}], **USER}
        return
    message = turns[0].message
    if native and message.form == "text":
        body[key] = message.text
        return
    parts = [
        _with_spelling(writer.part(block, position), f"{SYSTEM_KEY}.parts[{index}]", form)
        for turn in turns
        for index, (block, position) in enumerate(zip(turn.blocks, turn.positions, strict=True))
        if native or not (isinstance(block, Text) and not block.text)
    ]
    if not native:
        _report_system(turns, writer.losses)
        if not parts:
            return
    content: JsonObject = dict(form.get(f"{SYSTEM_KEY}.rest", USER))
    _put_parts(content, parts, message.form, form.get(f"{SYSTEM_KEY}.parts") == "single")
    body[key] = content


def _report_system(turns: list[Turn], losses: Losses) -> None:
    """Report the changes of form when system messages become one instruction."""
    for turn in turns:
        role = turn.message.role
        if not turn.blocks:
            losses.add(turn.position, "empty_message_dropped", role)
        elif role != "system":
            losses.add(turn.position, "role_changed", f"{role} -> system")
        elif turn is not turns[0]:
            losses.add(turn.position, "message_boundary_dropped")
        if turn.message.form == "text" and turn.blocks:
            losses.add(turn.position, "string_as_list")
        elif turn.message.form == "list" and len(turn.blocks) == 1:
            losses.add(turn.position, "form_changed", "list of one text")


def _system_count(request: Request, turns: int) -> int:
    """The number of messages that are not in `contents`: 1 with a system instruction, else 0."""
    if request.wire is not None and request.wire.locate((0,)) in SYSTEM_KEYS:
        return 1
    # A request restored from a sidecar has the paths of another protocol.
    return len(request.messages) - turns


def _write_native(turn: Turn, number: int, writer: Writer, form: Mapping[str, Any]) -> JsonObject:
    """A content of a Gemini request in its original form."""
    message, path = turn.message, f"contents[{number}]"
    body: JsonObject = {"role": GEMINI_ROLES.get(turn.role, turn.role)}
    if form:
        original_role = form.get(f"{path}.role")
        if original_role is not None and turn.role == message.role:
            body = {"role": original_role[0]} if original_role else {}
    parts = [
        writer.part(block, position)
        for block, position in zip(turn.blocks, turn.positions, strict=True)
    ]
    if form:
        parts = [
            _with_spelling(part, f"{path}.parts[{index}]", form) for index, part in enumerate(parts)
        ]
    is_single = bool(form) and form.get(f"{path}.parts") == "single"
    _put_parts(body, parts, message.form, is_single)
    if message.ext is not None:
        body.update(message.ext.get(PROTOCOL, ()))
    return body


def _put_parts(body: JsonObject, parts: list[JsonObject], form: Form, is_single: bool) -> None:
    """Add `parts` to `body` in its original form; `is_single` means one part instead of a list."""
    if form == "null" and not parts:
        body["parts"] = None
    elif form != "absent" or parts:
        body["parts"] = parts[0] if is_single and len(parts) == 1 else parts


def _with_spelling(part: JsonObject, path: str, form: Mapping[str, Any]) -> JsonObject:
    spelling = form.get(path)
    return part if spelling is None else write_spelling(part, spelling)


def write_messages(messages: Sequence[Message]) -> JsonObject:
    """`contents`, and `system_instruction`: all system texts joined by a blank line, or `None`."""
    request = Request(model="", messages=tuple(messages))
    body = encode_request(request, Target(load_catalog().find(""))).body
    parts = body.get("systemInstruction", {}).get("parts", ())
    system = "\n\n".join(part["text"] for part in parts if part.get("text"))
    return {"system_instruction": system or None, "contents": body["contents"]}
