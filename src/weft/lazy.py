"""Imports names, and compiles regular expressions, only when they are first used.

Commands must start fast: `import weft.codec` must not import four codecs if one is needed. A
package lists its names in a table; type checkers read the imports beside it under `TYPE_CHECKING`.
"""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, AnyStr, cast


def lazy_names(package: str, table: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` that imports names when they are first used.

    `table` has the names of each module of the package, separated by spaces. If a module has a name
    equal to its own, the attribute of the package is that name's value, not the module.
    """
    modules = {name: module for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        module = modules.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded = import_module(f"{package}.{module}")
        if modules.get(module) == module:  # the import made the module an attribute of this name
            setattr(sys.modules[package], module, getattr(loaded, module))
        return getattr(loaded, name)

    return find


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled when it is first used; a long one takes a while."""
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)  # later lookups do not call `__getattr__`
        return method
