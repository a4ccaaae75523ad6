"""Write the generated parts of the reference: run `python docs/reference/make.py`."""

import inspect
import re
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import indent
from typing import Any, get_args

import weft
import weft.compact
import weft.store
import weft.thread
from weft.model import LOSS_CODES

HERE = Path(__file__).parent
MARK = "<!-- generated: python docs/reference/make.py -->"


def losses() -> str:
    """The table of loss codes."""
    lines = ["| code | kind | level | what | why |", "| --- | --- | --- | --- | --- |"]
    for code, entry in sorted(LOSS_CODES.items()):
        what = entry.what.replace("{detail}", "*detail*")
        lines.append(f"| `{code}` | {entry.kind} | {entry.level} | {what} | {entry.why} |")
    return "\n".join(lines)


def api() -> str:
    """Every public name with its signature and its docstring."""
    groups: dict[str, list[str]] = {"Functions": [], "Classes": [], "Errors": [], "Other names": []}
    for name in sorted(weft.__all__, key=str.lower):
        value = getattr(weft, name)
        if not isinstance(value, type):
            kind = "Functions" if inspect.isfunction(value) else "Other names"
            groups[kind].append(name)
        else:
            groups["Errors" if issubclass(value, BaseException) else "Classes"].append(name)
    parts: list[str] = []
    for title, names in groups.items():
        parts.append(f"## {title}")
        if title == "Errors":
            parts.append(error_tree())
        for name in names:
            parts += entry(name, getattr(weft, name))
    return "\n\n".join(parts)


def error_tree() -> str:
    """The tree in the docstring of `weft.errors`; its indentation makes it a code block."""
    lines = (inspect.getdoc(weft.errors) or "").splitlines()
    tree = "\n".join(line for line in lines if line.startswith("    "))
    return f"{tree}\n\n{OTHER_EXCEPTIONS}"


OTHER_EXCEPTIONS = (
    "Three exceptions are not a `WeftError`: a tool of yours raises `ToolFailed`;"
    " `BudgetWarning` and `HookWarning` are warnings."
)


def entry(name: str, value: Any) -> Iterator[str]:
    """One public name."""
    if inspect.isfunction(value):
        yield f"### `{name}{signature(value)}`"
        yield docstring(value)
    elif isinstance(value, type):
        arguments = "" if issubclass(value, BaseException) else constructor_signature(value)
        yield f"### `{name}{arguments}`"
        yield docstring(value)
        if constructor := constructor_text(value):
            yield constructor
        lines = [line for member in members(value) if (line := member_line(value, member))]
        if lines:
            yield "\n".join(lines).rstrip()
    else:
        yield f"### `{name}`"
        yield OTHER_NAMES[name].format(values=values(value))


OTHER_NAMES = {
    "AgentEvent": "An event of `Agent.run`: {values}.",
    "AgentTool": "A tool of an agent: a function, a `FunctionTool`, or something that has tools,"
    " such as an MCP server.",
    "AskPermission": "A function, async or not, that gets a `ToolRequest` and returns a"
    " `Permission`.",
    "Block": "A block of a message: {values}.",
    "CachePolicy": "Whether a translation sets cache breakpoints (`auto`) or keeps only those of"
    " the caller (`keep`).",
    "COMPACT_CONTEXT_TOOL": "The `ToolDefinition` of the agent's `compact_context` tool.",
    "COMPACT_TOOL": "The `ToolDefinition` of the agent's `compact` tool.",
    "LOSS_CODES": "What each loss code means: a dict from code to `LossCode`"
    " ([all codes](losses.md)).",
    "LossKind": "What happened to the value: {values}.",
    "Permission": "The answer to a `ToolRequest`: {values}.",
    "RECALL_TOOL": "The `ToolDefinition` of the agent's `recall` tool.",
    "SystemPolicy": "What happens to later system messages (those after the leading ones)."
    " `inline`: they stay in place, unless the protocol has no place for them. `demote`: they"
    " become `user` messages. `merge`: all system messages are joined into one at the start."
    " `auto`: they stay in place where the target accepts them, and become `user` messages"
    " elsewhere.",
    "ThinkingMember": "The member that shows another vendor's thinking to a Chat Completions"
    " client: {values}.",
}
"""Descriptions of public names that have no docstring."""


def values(value: Any) -> str:
    """The members of a union or of a `Literal`."""
    names = [f"`{getattr(each, '__name__', repr(each))}`" for each in get_args(value)]
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else "".join(names)


def constructor_signature(value: type) -> str:
    """The arguments of a class; nothing for classes that only Weft creates."""
    if value.__name__ in FACTORY_MADE or getattr(value, "_is_protocol", False):
        return ""
    try:
        return without_result(signature(value))
    except ValueError:  # a subclass of dict or str
        return ""


FACTORY_MADE = {"Thread", "CommitInfo", "CompiledContext", "Translation", "AgentAnswer"}


@cache
def type_names() -> dict[str, Any]:
    """The names that annotations may use although their module imports them for type checkers."""
    packages = (weft.compact, weft.model, weft.store, weft.thread, weft)
    return {name: getattr(package, name) for package in packages for name in package.__all__}


def signature(value: Any) -> str:
    """A signature without the modules of its types and without addresses in its defaults."""
    try:
        text = str(inspect.signature(value, eval_str=True, locals=type_names()))
    except NameError:
        text = str(inspect.signature(value))
    text = re.sub(r"<(?:function|object|class) ?'?([\w.]+)[^>]*>", r"\1", text)
    text = re.sub(
        r"\b(?:weft|typing|collections\.abc|os|pathlib|msgspec)(?:\.[a-z_]+)*\.(?=[A-Z])", "", text
    )
    text = shorten_defaults(text)
    return re.sub(
        r"\((?:self, |self\))", lambda m: "()" if m[0].endswith(")") else "(", text, count=1
    )


def shorten_defaults(text: str) -> str:
    """Write a default such as `Importance(system=10.0, ...)` as `Importance(...)`."""
    parts: list[str] = []
    while match := re.search(r"= [A-Z]\w*\((?!\))", text):
        depth, end = 1, match.end()
        while depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        parts += [text[: match.end()], "...)"]
        text = text[end:]
    return "".join([*parts, text])


def without_result(text: str) -> str:
    return text.removesuffix(" -> None")


def docstring(value: Any) -> str:
    return inspect.getdoc(value) or ""


def constructor_text(value: type) -> str:
    """The docstring of the constructor, unless only Weft calls it or the class inherits it."""
    constructor = vars(value).get("__init__")
    is_documented = isinstance(constructor, types.FunctionType) and constructor.__doc__
    if not is_documented or value.__name__ in FACTORY_MADE or issubclass(value, BaseException):
        return ""
    return docstring(constructor)


def members(value: type) -> list[str]:
    own = [name for name in dir(value) if not name.startswith("_")]
    fields = set(getattr(value, "__struct_fields__", ()))
    outside = {
        name for base in (BaseException, dict, str) if issubclass(value, base) for name in dir(base)
    }
    return [name for name in own if name not in fields | outside]


def member_line(value: type, member: str) -> str | None:
    """A method or property with its docstring; later paragraphs are indented below it."""
    attribute = inspect.getattr_static(value, member)
    if isinstance(attribute, staticmethod | classmethod):
        attribute = attribute.__func__
    if isinstance(attribute, types.FunctionType):
        head = f"`.{member}{signature(attribute)}`"
    elif isinstance(attribute, property) or hasattr(attribute, "func"):
        head = f"`.{member}`"
    else:
        return None
    text = inspect.getdoc(
        getattr(attribute, "fget", None) or getattr(attribute, "func", None) or attribute
    )
    first, _, rest = (text or "").partition("\n\n")
    sentence = first.replace("\n", " ")
    line = f"- {head}: {sentence}" if sentence else f"- {head}"
    return f"{line}\n\n{indent(rest, '  ')}\n" if rest else line


PARTS = {"losses.md": losses, "api.md": api}


def pages() -> dict[Path, str]:
    """Each page with its generated part, which ends the page."""
    texts: dict[Path, str] = {}
    for name, part in PARTS.items():
        page = HERE / name
        head = page.read_text().partition(MARK)[0].rstrip()
        texts[page] = f"{head}\n\n{MARK}\n\n{part()}\n"
    return texts


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
