"""Imports names, and compiles regular expressions, only when they are first used.

Commands must start fast: `import weft.codec` must not import four codecs if only one is needed. A
package lists the names of its modules in a table. Type checkers read the same imports under
`TYPE_CHECKING`.
"""

import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, AnyStr, cast


def lazy_names(package: str, table: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's `__getattr__` that imports names when they are first used.

    `table` has the names of each module of the package, separated by spaces. If a module defines a
    name equal to its own, the package's attribute is that object and not the module:
    `weft.compact.summarise` is the function.
    """
    module_of_name = {name: module for module, names in table.items() for name in names.split()}

    def find(name: str) -> Any:
        module = module_of_name.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        loaded = import_module(f"{package}.{module}")
        if module_of_name.get(module) == module:
            # The import has set this attribute of the package to the module. Replace it.
            setattr(sys.modules[package], module, getattr(loaded, module))
        return getattr(loaded, name)

    return find


def lazy_pattern(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A regular expression that is compiled when it is first used; a long one takes a while.

    Only its methods work (`pattern.sub(...)`): the functions of `re` do not accept it.
    """
    return cast("re.Pattern[AnyStr]", _LazyPattern(pattern, flags))


class _LazyPattern:
    def __init__(self, pattern: Any, flags: int) -> None:
        self._source = (pattern, flags)

    def __getattr__(self, name: str) -> Any:
        method = getattr(re.compile(*self._source), name)
        setattr(self, name, method)  # later lookups do not call `__getattr__`
        return method
