"""Every public call raises a `WeftError` for a wrong argument and after `close`."""

import asyncio
import inspect
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import StoreError, WeftError
from weft.model import Opaque

JUNK: list[Any] = [None, 5, -1, 1.5, True, "", "junk", b"bytes", [], [5], {}, {"a": 5}, object()]
GOOD: dict[str, Any] = {
    "text": "words", "name": "some-name", "id": "HEAD", "about": "HEAD", "branch": "main",
    "at": None, "onto": "main", "query": "words", "wanted": "words", "call_id": "c1",
    "answer": "words", "content": {"content_type": "dialogue", "role": "user", "text": "x"},
    "priority": "pinned", "before": "HEAD", "results": [], "hook": print, "callback": print,
    "event": weft.SystemMessage("status", {}),
    "entry": weft.Message("user", ()), "data": b"[]", "messages": [], "summary": 0,
    "message": None, "usage": {"input_tokens": 1, "output_tokens": 1}, "target": None,
    "block": Opaque("openai-responses", {"type": "compaction"}),
}  # fmt: skip
PARAMS = [f"to_{name}_params" for name in ("anthropic", "gemini", "openai", "responses")]
LEFT_OUT = {"close", "batch", "compacting", "delete"}


def methods() -> list[str]:
    functions = inspect.getmembers(weft.Thread, inspect.isfunction)
    return [name for name, _ in functions if not name.startswith("_") and name not in LEFT_OUT]


def rows(function: Any) -> Iterator[dict[str, Any]]:
    """Calls that are right but for one argument."""
    parameters = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self" and parameter.kind not in (2, 4)
    ]
    right = {
        parameter.name: GOOD[parameter.name]
        for parameter in parameters
        if parameter.default is parameter.empty
    }
    for parameter in parameters:
        for junk in JUNK:
            yield {**right, parameter.name: junk}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", methods())
def test_a_thread_method_refuses_wrong_arguments(name: str) -> None:
    wrong: list[str] = []
    for options in rows(getattr(weft.Thread, name)):
        t = weft.open()
        t.user("words")
        t.assistant("more words")
        try:
            getattr(t, name)(**options)
        except WeftError:
            pass
        except Exception as error:
            wrong.append(f"{options}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize("name", ["open", "threads", "search", "undelete"])
def test_a_store_function_refuses_wrong_arguments(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # "junk" is a path like any other
    wrong: list[str] = []
    for options in rows(getattr(weft, name)):
        try:
            getattr(weft, name)(**options)
        except WeftError:
            pass
        except Exception as error:
            wrong.append(f"{options}: {error!r}")
    assert wrong == []


@pytest.mark.parametrize(
    "name",
    [
        "build_anthropic_system_param",
        "create_checkpoint_content",
        "decode",
        "encode",
        "encode_message",
        "generate_checkpoint_id",
        "translate",
        "translate_error",
        "translate_response",
    ],
)
@pytest.mark.parametrize("junk", JUNK, ids=lambda value: type(value).__name__)
def test_a_translation_function_refuses_wrong_arguments(name: str, junk: Any) -> None:
    function = getattr(weft, name)
    parameters = inspect.signature(function).parameters.values()
    needed = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    with suppress(WeftError):
        function(**dict.fromkeys(needed, junk))


NOT_CALLED = {"Asker", "Store", "ToolSource", "open", "search", "threads", "undelete"}
FACTORY_MADE = {
    "AgentAnswer",
    "CommitInfo",
    "CompiledContext",
    "Thread",
    "Translation",
    "VendorParams",
}
"""Classes that Weft's own functions make: their constructors are not public."""


def public_callables() -> Iterator[str]:
    """All but errors, type aliases and what other tests here call."""
    for name in weft.__all__:
        value = getattr(weft, name)
        is_error = isinstance(value, type) and issubclass(value, BaseException)
        is_named = isinstance(value, type) or inspect.isfunction(value)
        if is_named and not is_error and name not in NOT_CALLED | FACTORY_MADE:
            yield name


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", list(public_callables()))
def test_any_public_callable_refuses_wrong_arguments(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Junk for all that is needed, then for each option beside a text for what is needed."""
    monkeypatch.chdir(tmp_path)
    function = getattr(weft, name)
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind != p.VAR_KEYWORD
    ]
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in (2, 4)]
    optional = [p.name for p in parameters if p.default is not p.empty]
    wrong: list[str] = []
    for junk in JUNK:
        calls = [dict.fromkeys(needed, junk)]
        calls += [{**dict.fromkeys(needed, "x"), option: junk} for option in optional]
        for options in calls:
            try:
                function(**options)
            except WeftError:
                pass
            except Exception as error:
                wrong.append(f"{options}: {error!r}")
    assert wrong == []


AGENT: dict[str, Any] = {
    "thread": 5,
    "model": 5,
    "tools": 5,
    "system": 5,
    "provider": 5,
    "base_url": 5,
    "steps": "x",
    "pace": "x",
    "catalog": 5,
    "policy": 5,
    "compaction": 5,
    "temperature": "x",
    "max_tokens": "x",
    "params": 5,
    "parallel_tools": "x",
}


@pytest.mark.parametrize("name", AGENT)
def test_an_agent_names_the_wrong_argument(name: str) -> None:
    with pytest.raises(WeftError, match=name.removeprefix("base_")):
        weft.Agent(**{"thread": weft.open(), name: AGENT[name]})


@pytest.mark.parametrize("name", weft.Compaction.__struct_fields__)
def test_a_compaction_names_the_wrong_field(name: str) -> None:
    with pytest.raises(WeftError, match=name):
        weft.Compaction(**{name: object()})


@pytest.mark.parametrize("name", ["run", "send", "asend", "context_use"])
def test_an_agent_method_refuses_wrong_arguments(name: str) -> None:
    agent = weft.Agent(weft.open())
    for junk in (5, [], {}, b"x", object()):
        with pytest.raises(WeftError, match="text must be"):
            finished(getattr(agent, name), junk)


def finished(method: Any, *args: Any) -> Any:
    called = method(*args)
    return asyncio.run(called) if inspect.iscoroutine(called) else called


@pytest.mark.parametrize("name", PARAMS)
def test_an_unknown_parameter_is_named_with_the_known_ones(name: str) -> None:
    t = weft.open()
    t.user("words")
    accepted = rf"temperature is not an argument of .*{name}\(\): give model, tools, system"
    with pytest.raises(WeftError, match=accepted) as refused:
        getattr(t.compile(), name)(temperature=0)
    assert isinstance(refused.value, TypeError)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("option", ["tools", "system", "max_tokens"])
def test_an_option_of_the_wrong_type_is_named(name: str, option: str) -> None:
    t = weft.open()
    t.user("words")
    with pytest.raises(WeftError, match=f"{option} must be"):
        getattr(t.compile(), name)(**{option: object()})


@pytest.mark.parametrize("junk", JUNK, ids=lambda value: type(value).__name__)
def test_a_compiled_context_refuses_a_wrong_recipe(junk: Any) -> None:
    t = weft.open()
    t.user("words")
    with pytest.raises(WeftError, match="recipe must be Recipe"):
        t.compile().apply_recipe(junk)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("junk", JUNK, ids=lambda value: type(value).__name__)
def test_a_compiled_context_refuses_a_wrong_model(name: str, junk: Any) -> None:
    t = weft.open()
    t.user("words")
    with suppress(WeftError):
        getattr(t.compile(), name)(junk)


@pytest.mark.parametrize("where", ["file", "memory"])
@pytest.mark.parametrize("name", methods())
def test_a_method_after_close_raises(name: str, where: str, tmp_path: Path) -> None:
    t = weft.open(tmp_path / "a.db") if where == "file" else weft.open()
    t.user("words")
    t.close()
    options = next(rows(getattr(weft.Thread, name)), {})
    first = next(iter(options), None)
    if first is not None and first in GOOD:
        options[first] = GOOD[first]
    expected = "closed: open it again"
    try:
        getattr(t, name)(**options)
    except StoreError as error:
        expected = str(error)
    except WeftError:
        pass  # the argument was refused before the store was asked
    assert "closed: open it again" in expected


@pytest.mark.parametrize("where", ["file", "memory"])
def test_after_close_the_error_says_what_to_do(where: str, tmp_path: Path) -> None:
    t = weft.open(tmp_path / "a.db") if where == "file" else weft.open()
    t.user("x")
    t.close()
    for verb in (lambda: t.user("y"), t.compile, t.log, t.stats, lambda: t.head, t.undo):
        with pytest.raises(StoreError, match="closed: open it again"):
            verb()


def test_a_wrong_type_names_the_argument_and_the_expected_type() -> None:
    t = weft.open()
    for number in range(3):
        t.user(f"question {number}")
        t.assistant(f"answer {number}")
    with pytest.raises(WeftError, match=r"keep must be int or None, not str"):
        t.compact(keep="x")  # type: ignore[arg-type]


def test_opening_creates_no_folders(tmp_path: Path) -> None:
    path = tmp_path / "nonexistent" / "x.db"
    with pytest.raises(StoreError, match=r"the folder .* does not exist"):
        weft.open(path)
    assert not path.parent.exists()


def test_an_unclosed_thread_gives_no_warning(tmp_path: Path) -> None:
    program = f"import weft; t = weft.open({str(tmp_path / 'a.db')!r}); t.user('x'); t.compile()"
    command = [sys.executable, "-X", "dev", "-W", "error", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_default_store_is_created_with_its_folders(tmp_path: Path) -> None:
    program = "from weft.cli import entry; entry()"
    command = [sys.executable, "-c", program, "chat", "hello"]
    environ = {**os.environ, "HOME": str(tmp_path)}
    environ.pop("WEFT_STORE", None)
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=60, check=False, env=environ
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / ".local/share/weft/weft.db").is_file()
