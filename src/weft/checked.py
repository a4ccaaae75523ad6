"""Decorators that turn an error caused by a wrong argument into a `WrongValue` that names it.

Checking every argument of every call would cost more than many calls do. So arguments are checked
only after a call failed with an error that is not Weft's. If an argument does not fit the type
hints of the function, the `WrongValue` names it. Otherwise the original error is raised.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, wraps
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from weft.errors import UnknownArgument, WeftError, WrongValue

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


ASYNC_FLAGS = 0x80 | 0x200
"""Flags of coroutines and async generators.

https://docs.python.org/3/library/inspect.html#code-objects-bit-flags
"""


def checked(cls: C) -> C:
    """Decorate a class so that errors of its public methods name the wrong argument."""
    return checked_class()(cls)


def checked_class(*, eager: Sequence[str] = ()) -> Callable[[C], C]:
    """Like `checked`, but the methods in `eager` check their arguments before they run."""

    def decorate(cls: C) -> C:
        for name, method in list(vars(cls).items()):
            if not isinstance(method, types.FunctionType):
                continue
            if name == "__init__" and name in eager:
                setattr(cls, name, checked_constructor(method))
            elif name in eager:
                setattr(cls, name, checked_first(method))
            elif not name.startswith("_"):
                setattr(cls, name, checked_function(method))
        return cls

    return decorate


def checked_function(function: F) -> F:
    """Decorate a function so that, if it fails, the error names the wrong argument."""
    if function.__code__.co_flags & ASYNC_FLAGS:
        return checked_first(function)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        try:
            return function(*args, **options)
        except WeftError:
            raise
        except Exception as error:  # a wrong argument can cause an error of any kind
            # Nothing is swallowed: if no argument is wrong, the same error is raised.
            raise _explain(error, function, args, options) from error

    return cast(F, call)


def checked_first(function: F) -> F:
    """Decorate a function so that its arguments are checked before it runs."""

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        wrong = _find_wrong_argument(function, args, options)
        if wrong is not None:
            raise wrong
        return function(*args, **options)

    return cast(F, call)


def checked_constructor(function: F) -> F:
    """Decorate a constructor so that its arguments are checked even if it does not fail.

    The constructor's own errors come first, because they are more specific.
    """
    explained = checked_function(function)

    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        explained(*args, **options)
        wrong = _find_wrong_argument(function, args, options)
        if wrong is not None:
            raise wrong

    return cast(F, call)


def _explain(
    error: Exception, function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> Exception:
    """The `WrongValue` that explains an error, or the error itself."""
    return _find_wrong_argument(function, args, options) or error


def _find_wrong_argument(
    function: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]
) -> WrongValue | None:
    """The error for the first wrong argument; `None` if all fit, or if one is missing."""
    from inspect import Parameter, signature  # slow to import

    function_signature = signature(function)
    parameters = function_signature.parameters
    takes_any_name = any(
        parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values()
    )
    names = [name for name in parameters if name != "self"]
    unknown = [name for name in options if name not in names]
    if unknown and not takes_any_name:
        call = f"{function.__qualname__.removesuffix('.__init__')}()"
        return UnknownArgument(unknown[0], call, names)
    try:
        bound = function_signature.bind(*args, **options)
        hints = _hints(function)
    except (TypeError, NameError):
        return None
    for name, value in bound.arguments.items():
        if name in hints and not fits(value, hints[name]):
            return WrongValue(
                name, f"must be {_describe_hint(hints[name])}, not {_type_name(value)}"
            )
    return None


@lru_cache(maxsize=256)
def _hints(function: Callable[..., Any]) -> Mapping[str, Any]:
    return get_type_hints(function)


def check_fields(value: Any) -> None:
    """Raise `WrongValue` if a field of a value does not fit its type hint."""
    for name, hint in _hints(cast(type[Any], type(value))).items():
        field = getattr(value, name)
        if not fits(field, hint):
            wrong = f"must be {_describe_hint(hint)}, not {_type_name(field)}"
            raise WrongValue(f"{type(value).__name__}.{name}", wrong)


def fits(value: Any, hint: Any) -> bool:
    """Whether a value fits a type hint; hints that cannot be checked accept any value."""
    origin = get_origin(hint)
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(fits(value, choice) for choice in get_args(hint))
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in get_args(hint))
    if origin is not None:
        return _fits_generic(value, origin, get_args(hint))
    if hint is Any or hint is object or not isinstance(hint, type):
        return True
    if isinstance(value, bool) and hint in (int, float):
        return False
    if hint is float:
        return isinstance(value, int | float)
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in _protocol_members(hint))
    return isinstance(value, hint)


def _protocol_members(protocol: type) -> set[str]:
    """The public members that a protocol requires."""
    bases = [base for base in protocol.__mro__ if getattr(base, "_is_protocol", False)]
    names = {
        name for base in bases for name in (*vars(base), *vars(base).get("__annotations__", ()))
    }
    return {name for name in names if not name.startswith("_")}


def _fits_generic(value: Any, origin: Any, parameters: tuple[Any, ...]) -> bool:
    if origin is Callable:
        return callable(value)
    if not isinstance(origin, type):
        return True
    if not isinstance(value, origin):
        return False
    if isinstance(value, str | bytes):
        return not parameters or parameters[0] in (str, Any)
    if isinstance(value, Mapping) and len(parameters) == 2:
        entries = cast(Mapping[Any, Any], value)
        return all(fits(k, parameters[0]) and fits(v, parameters[1]) for k, v in entries.items())
    if isinstance(value, Sequence) and parameters:
        return all(fits(item, parameters[0]) for item in cast(Sequence[Any], value))
    return True


def _describe_hint(hint: Any) -> str:
    """A type hint as English text: `str, int or None`."""
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    names = [_hint_name(part) for part in parts]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


def _hint_name(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "None"
    if get_origin(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    if get_origin(hint) is Callable:
        return "a function"
    if get_args(hint):
        parameters = ", ".join(_hint_name(part) for part in get_args(hint) if part is not Ellipsis)
        return f"{getattr(get_origin(hint), '__name__', hint)}[{parameters}]"
    return str(getattr(hint, "__name__", hint))


def _type_name(value: Any) -> str:
    return "None" if value is None else type(value).__name__
