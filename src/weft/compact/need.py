"""How likely the rest of a conversation needs a name again.

A logistic model over how a name occurs so far: how often, how recently, and whether the user, the
assistant, a call's address (path, command, pattern), another argument or a result mentions it. Its
constants were fitted to recorded coding sessions: a name counts as needed if the arguments of a
later call contain it. `make eval` fits them on each transcript and measures them on the others.
"""

from math import exp, log
from typing import NamedTuple

from .entities import Name
from .source import Mentions


class NeedModel(NamedTuple):
    """The weight of each feature."""

    bias: float = 0.0
    total: float = 0.35
    age: float = -0.8
    user: float = 0.8
    assistant: float = 0.2
    address: float = 1.3
    body: float = 0.5
    path: float = -0.2
    error: float = -0.3
    hash: float = -0.5
    number: float = -0.6


NEED = NeedModel()


def features(name: Name, mentions: Mentions, rows: int) -> tuple[float, ...]:
    """The features of a name among `rows` rows, in the order of `NeedModel`."""
    kind = name[0]
    return (
        1.0,
        log(1 + mentions.total),
        log(1 + rows - mentions.last_row),
        1.0 if mentions.user else 0.0,
        1.0 if mentions.assistant else 0.0,
        log(1 + mentions.address),
        log(1 + mentions.body),
        1.0 if kind == "path" else 0.0,
        1.0 if kind == "error" else 0.0,
        1.0 if kind == "hash" else 0.0,
        1.0 if kind == "number" else 0.0,
    )


def need(name: Name, mentions: Mentions, rows: int, model: NeedModel = NEED) -> float:
    """The probability that a later call needs this name."""
    values = features(name, mentions, rows)
    score = sum([weight * value for weight, value in zip(model, values, strict=True)])
    return 1 / (1 + exp(-score))
