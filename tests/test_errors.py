"""The error tree in the docstring matches the classes."""

import re

import weft
import weft.errors as errors


def drawn() -> dict[str, str | None]:
    """Each class of the drawing with the class that it stands under."""
    parents: dict[str, str | None] = {}
    path: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"    ([│├└─ ]*)([A-Z][A-Za-z]+)", line)
        if match is None:
            continue
        depth, name = len(match[1]), match[2]
        while path and path[-1][0] >= depth:
            path.pop()
        parents[name] = path[-1][1] if path else None
        path.append((depth, name))
    return parents


def test_the_drawing_matches_the_class_tree():
    classes = {
        name: value.__bases__[0].__name__ if value is not weft.WeftError else None
        for name, value in vars(errors).items()
        if isinstance(value, type) and issubclass(value, weft.WeftError)
    }
    assert drawn() == classes


def test_every_error_is_public():
    assert [name for name in drawn() if name not in weft.__all__] == []


def test_a_rate_limit_is_not_a_protocol_error():
    assert not issubclass(weft.UpstreamFailed, weft.UpstreamProtocolError)
    assert issubclass(weft.UpstreamFailed, weft.UpstreamError)
