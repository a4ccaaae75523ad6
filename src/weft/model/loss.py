"""What a translation could not say. A drop is a value, never a silence."""

from typing import Literal

from msgspec import Struct

Level = Literal["meaning", "form"]


class Loss(Struct, frozen=True, gc=False):
    """One thing that did not travel.

    `path` is the caller's own (`messages[2].content[0]`). `level` is `meaning` where the model or
    the user could notice, `form` for spelling: null or absent, string or list, an added default.
    """

    path: str
    what: str
    why: str
    level: Level = "meaning"
