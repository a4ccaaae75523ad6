"""Every type in a public signature is public."""

import inspect
import types
import typing
from collections.abc import Iterator

import pytest

import weft
from weft.history import View

FACTORY_MADE = {"Thread", "CommitInfo", "CompiledContext", "Translation"}
"""Classes that Weft's own functions make: their constructors are not public."""

OPAQUE = {"Store", "Append", "Rewrite", "Setup", "Wire"}
"""Types that callers pass on and do not take apart: their members are not public."""


def types_in(hint: object) -> Iterator[type]:
    for part in typing.get_args(hint):
        for inner in part if isinstance(part, list) else (part,):
            yield from types_in(inner)
    kind = typing.get_origin(hint) or hint
    if isinstance(kind, type):
        yield kind


def functions(name: str, value: object) -> Iterator[tuple[str, object]]:
    """The callables of a public name with the name that a reader knows them by."""
    if not isinstance(value, type):
        yield name, value
        return
    for member in dir(value):
        hidden = member.startswith("_") and member != "__init__"
        if hidden or (member == "__init__" and name in FACTORY_MADE):
            continue
        attribute = inspect.getattr_static(value, member)
        if isinstance(attribute, staticmethod | classmethod):
            attribute = attribute.__func__
        attribute = attribute.fget if isinstance(attribute, property) else attribute
        if isinstance(attribute, types.FunctionType):
            yield f"{name}.{member}", attribute


def hints(name: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, type) and name not in OPAQUE:
        for field, hint in typing.get_type_hints(value).items():
            if not field.startswith("_"):
                yield f"{name}.{field}", hint
    for place, function in functions(name, value) if name not in OPAQUE else ():
        if isinstance(function, types.FunctionType):
            for variant in (function, *typing.get_overloads(function)):
                for argument, hint in typing.get_type_hints(variant).items():
                    yield f"{place}({argument})", hint


@pytest.mark.parametrize("name", weft.__all__)
def test_every_type_in_a_public_signature_is_public(name):
    public = {getattr(weft, other) for other in weft.__all__ if is_class(other)}
    private = {
        f"{place}: {kind.__module__}.{kind.__qualname__}"
        for place, hint in hints(name, getattr(weft, name))
        for kind in types_in(hint)
        if kind.__module__.partition(".")[0] == "weft" and kind not in public
    }
    assert private == set()


def is_class(name: str) -> bool:
    return isinstance(getattr(weft, name), type)


@pytest.mark.parametrize("name", [name for name in weft.__all__ if is_class(name)])
def test_a_class_is_public_under_its_own_name(name):
    assert getattr(weft, name).__name__ == name


def test_the_check_finds_private_types():
    def leak(row: View) -> None:
        """A signature with a private type."""

    assert [kind for _, hint in hints("leak", leak) for kind in types_in(hint)] == [
        View,
        type(None),
    ]


@pytest.mark.parametrize("name", weft.__all__)
def test_a_public_name_has_a_docstring(name):
    value = getattr(weft, name)
    if isinstance(value, type) or inspect.isfunction(value):
        assert inspect.getdoc(value)
