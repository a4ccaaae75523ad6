"""What both sides made of the setup: merged part by part, with a conflict where a part differs.

The parts are the list of tools and each parameter. A part is taken whole: half of one list of
tools and half of another is what nobody asked for, unless somebody asks with `concat`, which
keeps our tools and adds theirs of other names. For a single value there is no such word, and ours
stands.
"""

from typing import Any

from msgspec import structs

from weft.errors import MergeConflict
from weft.model import Params, Tool

from .conflict import CHOICES, Choose, SetupConflict
from .objects import Setup

TOOLS = "tools"


def merge_setup(
    base: Setup | None, ours: Setup | None, theirs: Setup | None, settle: Choose
) -> Setup | None:
    """The tools and parameters that hold after a merge; `settle` is asked where both changed one.

    Raises `MergeConflict` where the answer is no choice: words are no setup.
    """
    if ours == theirs or theirs == base:
        return ours
    if ours == base:
        return theirs
    old, left, right = (_parts(setup) for setup in (base, ours, theirs))
    parts = {name: right[name] if left[name] == old[name] else left[name] for name in old}
    clash = [n for n in old if left[n] != right[n] and old[n] not in (left[n], right[n])]
    if clash:
        conflict = SetupConflict(tuple(clash), base, ours, theirs)
        parts.update(_chosen(conflict, settle(conflict), left, right))
    merged = _setup(parts)
    return ours if merged == (ours or Setup()) else merged


def setup_changes(before: Setup | None, after: Setup | None) -> tuple[str, ...]:
    """The parts that are not the same."""
    old, new = _parts(before), _parts(after)
    return tuple(name for name in old if old[name] != new[name])


def _chosen(
    conflict: SetupConflict, choice: str, left: dict[str, Any], right: dict[str, Any]
) -> dict[str, Any]:
    """The parts in conflict, as they were settled."""
    if choice not in CHOICES:
        line = f"the setup takes ours, theirs or concat, not the words {choice!r}"
        raise MergeConflict(line, (conflict,))
    side = right if choice == "theirs" else left
    found = {name: side[name] for name in conflict.parts}
    if choice == "concat" and TOOLS in found:
        found[TOOLS] = _both(left[TOOLS], right[TOOLS])
    return found


def _both(ours: tuple[Tool, ...], theirs: tuple[Tool, ...]) -> tuple[Tool, ...]:
    known = {tool.name for tool in ours}
    return (*ours, *(tool for tool in theirs if tool.name not in known))


def _parts(setup: Setup | None) -> dict[str, Any]:
    setup = setup or Setup()
    return {TOOLS: setup.tools, **structs.asdict(setup.params)}


def _setup(parts: dict[str, Any]) -> Setup:
    params = {name: value for name, value in parts.items() if name != TOOLS}
    return Setup(parts[TOOLS], Params(**params))
