"""The tools of the page's agent. They need no key.

`calculate` and `now` only compute. `search_threads` shows the model what is in other threads, so a
person must allow it.
"""

import ast
import operator
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from weft.errors import ThreadError
from weft.function_tools import FunctionTool, tool
from weft.store import Store, ThreadRecord
from weft.thread import open as open_thread

MAX_NUMBER = 10**100  # larger numbers are too long to read, and slow to compute
MAX_HITS = 5
HIT_LENGTH = 300  # characters of a message

BINARY_OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: operator.mod,
}
UNARY_OPERATORS: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}


def demo_tools(
    store: Store, threads: Callable[[], Sequence[ThreadRecord]]
) -> Sequence[Callable[..., Any] | FunctionTool]:
    """The functions that the agent may call; `search_threads` searches only these threads."""

    def search_threads(words: str) -> str:
        """Find messages in all threads of this store, compacted ones included.

        Args:
            words: words that the message contains
        """
        lines = [
            f"{record.name}: {' '.join(hit.text.split())[:HIT_LENGTH]}"
            for record in threads()
            for hit in open_thread(store, record.name).search(words)[:MAX_HITS]
        ]
        return "\n".join(lines[:MAX_HITS]) or f"no message contains {words!r}"

    return (calculate, now, tool(search_threads, ask=True))


def calculate(expression: str) -> str:
    """Work out an expression of numbers, brackets and + - * / // %.

    Args:
        expression: for instance (12 + 30) * 2
    """
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _evaluate(tree.body)
        return str(int(value) if float(value).is_integer() else value)
    except SyntaxError:
        raise ThreadError(f"{expression!r} is not an expression of numbers") from None
    except ZeroDivisionError:
        raise ThreadError(f"{expression!r} divides by zero") from None
    except RecursionError:
        raise ThreadError("the expression is nested too deeply") from None


def now() -> str:
    """The date and time here."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def _evaluate(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            return _bounded(value)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in BINARY_OPERATORS:
            return _bounded(BINARY_OPERATORS[type(op)](_evaluate(left), _evaluate(right)))
        case ast.UnaryOp(op=op, operand=operand) if type(op) in UNARY_OPERATORS:
            return UNARY_OPERATORS[type(op)](_evaluate(operand))
        case _:
            raise ThreadError(f"{ast.unparse(node)!r} is not an expression of numbers")


def _bounded(value: Any) -> Any:
    """The value; raises `ThreadError` if it is too large to read."""
    if abs(value) > MAX_NUMBER:
        raise ThreadError("the numbers get too large")
    return value
