"""How a conversation begins and ends, where a vendor demands it of a list of messages.

The user speaks first. What the assistant has begun is gone on with by some models only, and by
Anthropic only where it ends in a word: "final assistant content cannot end with trailing
whitespace" (https://github.com/anomalyco/opencode/issues/1295).
"""

from msgspec import structs

from weft.catalog import Model
from weft.model import Message, Place, Text

from .base import Losses
from .turn import Turn

CONTINUED = "(continued)"


def close_ends(
    turns: list[Turn], model: Model, losses: Losses, *, user_first: bool, blank_end: bool
) -> None:
    """Begin with the user and, where the model takes no prefill, do not end with the assistant."""
    if user_first and turns and turns[0].role == "assistant":
        first = turns[0]
        losses.add(first.at, f"nothing: {CONTINUED!r} was added before it", "a user speaks first")
        turns.insert(0, _filler(first.number))
    if turns and turns[-1].role == "assistant" and user_first and not model.prefill:
        last = turns[-1]
        losses.add(
            last.at,
            f"nothing: {CONTINUED!r} was added behind it",
            f"{model.name} does not continue an assistant turn",
        )
        turns.append(_filler(last.number))
    elif turns and turns[-1].role == "assistant" and not blank_end:
        _end_in_a_word(turns[-1], losses)


def _end_in_a_word(turn: Turn, losses: Losses) -> None:
    last = turn.blocks[-1] if turn.blocks else None
    if not isinstance(last, Text) or last.text == last.text.rstrip():
        return
    *earlier, place = turn.places
    lose_blanks(place, losses)
    word = structs.replace(last, text=last.text.rstrip())
    turn.keep([*zip(turn.blocks[:-1], earlier, strict=True), (word, place)])


def lose_blanks(at: Place | str, losses: Losses) -> None:
    """Report that what the assistant has begun goes without the blanks at its end."""
    losses.add(at, "the blanks at its end", "an unfinished turn ends in a word here", "form")


def _filler(number: int) -> Turn:
    message = Message("user", (Text(CONTINUED),), form="text")
    return Turn("user", message, message.blocks, number, [(number,)])
