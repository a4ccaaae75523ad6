"""Tokens as a vendor counted them: the estimate, corrected by the last report.

A report says what everything up to a commit really came to. What is said, edited or hidden since
then is added or taken off by estimate. Reports come with answers, or by `record_usage`.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from weft.errors import ThreadError
from weft.history import View
from weft.model import Usage

from .handle import Handle

NEAR = 64
SPELLINGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("prompt_tokens",), "completion_tokens"),
    (("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"),
    (("promptTokenCount",), "candidatesTokenCount"),
)
"""How vendors name what went in and what came out; the first name must be there."""


class Calibration(Struct, frozen=True):
    """By how much estimates at this point are wrong, and who says so."""

    correction: int
    source: str


def read_usage(usage: Usage | Mapping[str, object]) -> Usage:
    """A vendor's report; raises `ThreadError` where it has no known name in it."""
    if isinstance(usage, Usage):
        return usage
    for inputs, output in SPELLINGS:
        if inputs[0] in usage:
            given = [usage.get(name) for name in inputs]
            out = usage.get(output)
            spent = sum(tokens for tokens in given if isinstance(tokens, int))
            return Usage(input=spent, output=out if isinstance(out, int) else 0)
    raise ThreadError(f"a report with {', '.join(map(str, usage)) or 'nothing'} is of no vendor")


def calibrate(handle: Handle, view: View) -> Calibration | None:
    """What the nearest report before this point teaches; `None` where there is none near."""
    if view.head is None:
        return None
    for step in reversed(handle.store.walk(handle.name, view.head, limit=NEAR)):
        if step.commit.usage is None:
            continue
        usage = msgspec.json.decode(step.commit.usage, type=Usage)
        if usage.input is not None and usage.output is not None:
            estimate = handle.view(step.commit.id).tokens(handle.count)
            source = f"api:{usage.input}+{usage.output}"
            return Calibration(usage.input + usage.output - estimate, source)
    return None
