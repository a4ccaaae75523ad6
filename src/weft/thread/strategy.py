"""How conflicts are settled: by a rule, by answers, by a function, or by asking."""

from collections.abc import Mapping, Sequence

from weft.errors import MergeConflict, ThreadError
from weft.history import CHOICES, AnyConflict, Choose

ASK, SQUASH = "ask", "squash"
STRATEGIES = (*CHOICES, SQUASH, ASK)

Strategy = str | Mapping[str, str] | Choose | None
"""`ours`, `theirs`, `concat`; per conflict's id one of these or the text to have; a function of
the conflict that answers so; `ask` gives the conflicts back as values. A merge also takes
`squash`."""


def chooser(strategy: Strategy) -> Choose | None:
    """How conflicts are settled; `None` where they are to be listed."""
    if strategy is None or strategy == ASK:
        return None
    if isinstance(strategy, str):
        if strategy not in CHOICES:
            raise ThreadError(f"{strategy!r} is no strategy; there are {', '.join(STRATEGIES)}")
        return lambda _: strategy
    if callable(strategy):
        return strategy
    answers = strategy

    def choose(conflict: AnyConflict) -> str:
        found = [answer for id, answer in answers.items() if conflict.id.startswith(id)]
        if len(found) != 1:
            raise MergeConflict(f"no answer for the conflict in {conflict.place}", (conflict,))
        return found[0]

    return choose


def conflict_line(what: str, conflicts: Sequence[AnyConflict]) -> str:
    """The one line that says where two sides disagree, and what may be said to settle it."""
    places = ", ".join(conflict.place for conflict in conflicts)
    return f"{what} and this branch both changed {places}; choose {', '.join(CHOICES)}"
