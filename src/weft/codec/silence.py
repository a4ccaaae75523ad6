"""A conversation of which nothing can be said where it goes.

What a wire cannot say of a message is left out and reported. Where that is all the caller said, no
answer could be one to him: vendors refuse an empty list, or a model would be asked about nothing.
"""

from collections.abc import Sequence

from weft.errors import Refused
from weft.model import Loss, Request, is_system

from .turn import Turn


def refuse_silence(request: Request, turns: Sequence[Turn], lost: Sequence[Loss]) -> None:
    """Raise `Refused`, at the first thing that was lost, where nothing of what was said is left.

    A thread that is compiled is its owner's, who may look at any part of it: it is not refused.
    """
    if request.wire is None or any(_says(turn) for turn in turns):
        return
    if all(is_system(message) or not message.blocks for message in request.messages):
        return
    first = next((loss for loss in lost if loss.level == "meaning"), None)
    if first is not None:
        said = f"nothing of this conversation can be said to the target: not {first.what}"
        raise Refused(f"{said}, because {first.why}", param=first.path)


def _says(turn: Turn) -> bool:
    """Whether a turn holds a block that the caller wrote; what fills a place stands at none."""
    if turn.moved is None:
        return bool(turn.blocks)
    return any(len(place) > 1 for place in turn.moved)
