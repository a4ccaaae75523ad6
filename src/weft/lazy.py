"""Names that a package exports and imports only when they are used.

Commands must start fast: `import weft.codec` must not import four codecs if one is needed. A
package lists its names in a table; type checkers read the imports beside it under `TYPE_CHECKING`.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def lazy_names(package: str, table: dict[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` that imports a name from its module in the table."""

    def find(name: str) -> Any:
        home = table.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return find
