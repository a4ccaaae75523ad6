"""Names that a package offers and imports only when somebody uses them.

A command must start in the blink of an eye, so `import weft.codec` may not read four codecs for
the one that is wanted. A package lists its names in a table; type checkers read the imports that
stand beside it under `TYPE_CHECKING`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str, table: dict[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__`: the name, from the module that the table says it lives in."""

    def find(name: str) -> Any:
        home = table.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return find
