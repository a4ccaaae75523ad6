"""Token counts corrected by what vendors report.

A report says how many tokens everything up to a commit really had. Changes after that commit are
added or subtracted by estimate. If a large conversation was compacted since the report, what was
removed counts with the ratio of the report. Reports come with answers, or from
`Thread.record_usage`.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from weft.errors import ThreadError
from weft.history import View
from weft.model import Usage

from .handle import Handle

NEAR = 64
LARGE = 20_000
"""Above this size, the ratio of a report is used instead of its difference, because a vendor's
hidden prompt is only a small part of it.
"""

SPELLINGS: tuple[tuple[tuple[str, ...], str], ...] = (
    (("prompt_tokens",), "completion_tokens"),
    (("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"), "output_tokens"),
    (("promptTokenCount",), "candidatesTokenCount"),
)
"""How vendors name input and output tokens; the first name must be present."""


class Calibration(Struct, frozen=True):
    """The error of estimates at a commit, and the report that it comes from."""

    correction: int
    source: str


def read_usage(usage: Usage | Mapping[str, object]) -> Usage:
    """A vendor's report; raises `ThreadError` if it has no known member."""
    if isinstance(usage, Usage):
        return usage
    for inputs, output in SPELLINGS:
        if inputs[0] in usage:
            counts = [usage.get(name) for name in inputs]
            output_tokens = usage.get(output)
            input_tokens = sum(tokens for tokens in counts if isinstance(tokens, int))
            return Usage(
                input=input_tokens,
                output=output_tokens if isinstance(output_tokens, int) else 0,
            )
    members = ", ".join(map(str, usage)) or "no members"
    raise ThreadError(f"a usage report with {members} matches no supported vendor")


def calibrate(handle: Handle, view: View) -> Calibration | None:
    """The correction from the nearest earlier report; `None` if there is none nearby."""
    if view.head is None:
        return None
    for step in reversed(handle.store.walk(handle.name, view.head, limit=NEAR)):
        if step.commit.usage is None:
            continue
        usage = msgspec.json.decode(step.commit.usage, type=Usage)
        if usage.input is not None and usage.output is not None:
            estimate = handle.view(step.commit.id).tokens(handle.count)
            source = f"api:{usage.input}+{usage.output}"
            reported = usage.input + usage.output
            correction = reported - estimate
            removed = max(0, estimate - view.tokens(handle.count))
            if removed and estimate >= LARGE:
                correction -= round(removed * (reported / estimate - 1))
            return Calibration(correction, source)
    return None
