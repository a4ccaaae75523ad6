"""Names that are imported, and regular expressions that are compiled, only when they are used.

Commands must start fast: `import weft.codec` must not import four codecs if one is needed. A
package lists its names in a table; type checkers read the imports beside it under `TYPE_CHECKING`.
"""

import re
from collections.abc import Callable
from importlib import import_module
from typing import Any, AnyStr, cast


def lazy_names(package: str, table: dict[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` that imports a name from its module in the table."""

    def find(name: str) -> Any:
        home = table.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return find


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled when it is first used; a long one takes a while."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)  # found without this function from now on
        return method
