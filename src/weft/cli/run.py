"""`weft run -- CMD`: runs a program whose model calls go through a gateway.

A gateway on the default port is used if one is running; otherwise one is started on a free port and
stopped after the program. However `weft run` ends, the program and that gateway end too
(`weft.cli.supervise`). The program is configured in the way that it supports (`CLIENTS`):
most read the base-URL variables, Codex only an option, opencode its configuration. If no request
arrived in the end, `weft run` says so.
"""

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import IO, Any, NamedTuple, cast
from urllib.error import URLError
from urllib.request import urlopen

from .console import print_error
from .main import nonempty
from .supervise import Ended, Program, TakenSignals, run_supervised

DEFAULT_URL = "http://127.0.0.1:8787"
START_SECONDS = 60.0
STOP_SECONDS = 30.0
"""How long a gateway may take to finish its running requests."""
POLL_SECONDS = 0.02
NAMES_SHOWN = 8
NOT_EXECUTABLE = 126
"""The exit code of shells for a file that is not a program."""

NOT_FOUND = 127
"""The exit code of shells for a program that does not exist."""

PLACEHOLDER_KEY = "weft"
"""A key for programs that do not start without one."""

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
RUNNERS = frozenset({"npx", "bunx", "pnpm", "yarn", "npm", "node", "bun", "env", "nice", "time"})
"""Programs that run another program, whose name is one of the next words."""

LAUNCH_CODE = (
    "import signal; signal.pthread_sigmask(signal.SIG_SETMASK, ()); "
    "from weft.cli.main import entry; entry()"
)
"""The gateway inherits the signal mask of `weft run`, which takes its signals one by one."""
Environment = Mapping[str, str]


class Client(NamedTuple):
    """A client that needs more than the base-URL variables.

    - `names`: the names of its program and its package.
    - `options`: options that are put before its own; `{url}` is the gateway's URL.
    - `variables`: makes the variables that it reads, from the gateway's URL, the environment and a
      temporary folder for files.
    - `keys`: its key variables.
    - `login`: the file that exists if the person is logged in. A key would replace the login.
    """

    names: tuple[str, ...]
    options: tuple[str, ...] = ()
    variables: Callable[[str, Environment, Path], dict[str, str]] | None = None
    keys: tuple[str, ...] = KEY_VARIABLES
    login: str | None = None


def opencode_variables(url: str, environ: Environment, _: Path) -> dict[str, str]:
    """The variables of opencode.

    Its base URLs include the version, and its configuration overrides variables.
    `OPENCODE_CONFIG_CONTENT` overrides all of its files. https://opencode.ai/docs/config
    """
    bases = {"anthropic": f"{url}/v1", "openai": f"{url}/v1", "google": f"{url}/v1beta"}
    config = {"provider": {name: {"options": {"baseURL": base}} for name, base in bases.items()}}
    try:
        own: Any = json.loads(environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        own = {}  # opencode would refuse it too
    merged = merge_json(cast(dict[str, Any], own), config) if isinstance(own, dict) else config
    return {
        "OPENCODE_CONFIG_CONTENT": json.dumps(merged),
        "ANTHROPIC_BASE_URL": f"{url}/v1",
    }


def gemini_variables(_: str, environ: Environment, folder: Path) -> dict[str, str]:
    """The variables of Gemini CLI.

    It uses its base URL only if its settings choose an API key and not a Google login, and no
    variable sets that. If the person's settings do not choose a key, the program gets another home
    folder with other settings; everything else there is linked to the real one.
    https://geminicli.com/docs/reference/configuration/
    """
    home = Path(environ.get("GEMINI_CLI_HOME") or Path.home()) / ".gemini"
    try:
        settings: Any = json.loads((home / "settings.json").read_text())
    except (OSError, ValueError):
        settings = {}
    key_settings = {"security": {"auth": {"selectedType": "gemini-api-key"}}}
    current = cast(dict[str, Any], settings) if isinstance(settings, dict) else dict[str, Any]()
    merged = merge_json(current, key_settings)
    if merged == current:
        return {}
    for name in GEMINI_FOLDERS:
        (home / name).mkdir(parents=True, exist_ok=True)
    overlay = folder / ".gemini"
    overlay.mkdir()
    for entry in home.iterdir():
        if entry.name != "settings.json":
            (overlay / entry.name).symlink_to(entry)
    (overlay / "settings.json").write_text(json.dumps(merged))
    return {"GEMINI_CLI_HOME": str(folder)}


GEMINI_FOLDERS = ("tmp", "history")
"""The folders of Gemini CLI's sessions, created in the real home folder so that they remain."""

CLIENTS = (
    Client(
        ("claude", "claude-code"),
        keys=("ANTHROPIC_API_KEY",),
        login="~/.claude/.credentials.json",
    ),
    # Codex ignores OPENAI_BASE_URL. https://github.com/openai/codex/blob/main/docs/config.md
    Client(
        ("codex",),
        options=("-c", 'openai_base_url="{url}/v1"'),
        keys=("CODEX_API_KEY", "OPENAI_API_KEY"),
        login="~/.codex/auth.json",
    ),
    Client(("gemini", "gemini-cli"), variables=gemini_variables),
    Client(("opencode", "opencode-ai"), variables=opencode_variables),
)
OTHER_CLIENT = Client(())


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options and the command after `--`."""
    parser.usage = "weft run [options] -- CMD [ARG ...]"
    parser.epilog = (
        "The exit code is that of the program, or 128 + N if signal N ended it. SIGTERM, SIGHUP "
        "and a closed terminal end the program, its children and the gateway; a program that does "
        "not end within 5 seconds is killed."
    )
    add_gateway_options(parser)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="CMD", help="the program to run")


def add_gateway_options(parser: argparse.ArgumentParser, *, store: bool = True) -> None:
    """Add the options that choose the gateway for a program.

    Without `store`, the caller has added `--store` already, and `WEFT_STORE` counts like it.
    """
    store_options = "--store" if store else "--store or WEFT_STORE"
    parser.add_argument(
        "--url",
        help=f"the URL of a running gateway (default: {DEFAULT_URL} if a gateway runs there; "
        f"otherwise, or with {store_options}, --config, --upstream, --model or --alias, a new one "
        "is started)",
    )
    if store:
        parser.add_argument(
            "--store", type=nonempty, metavar="PATH", help="the store of a new gateway"
        )
    parser.add_argument("--config", metavar="FILE", help="the weft.toml of a new gateway")
    parser.add_argument(
        "--upstream",
        action="append",
        default=[],
        metavar="NAME=PROTOCOL:URL",
        help="an upstream of a new gateway, as in `weft serve` (repeatable)",
    )
    parser.add_argument(
        "--model", help="the model that answers, whatever model name the program asks for"
    )
    parser.add_argument(
        "--alias",
        action="append",
        default=[],
        metavar="PATTERN=MODEL",
        help="the model that answers if the program asks for a model whose name matches the "
        "pattern, for example 'claude-*=openai/gpt-5' (repeatable)",
    )


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit code."""
    command: list[str] = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command:
        print_error("weft: run needs a command: weft run -- CMD")
        return 2
    return run_through_gateway(args, command)


def run_through_gateway(
    args: argparse.Namespace, command: list[str], folder: str | None = None
) -> int:
    """Run a program in a folder, with the gateway that the options choose."""
    flags = gateway_flags(args)
    if args.url is not None and flags:
        print_error("weft: --url names a running gateway: leave out the options of a new one")
        return 2
    if args.url is not None and not is_gateway(args.url.rstrip("/")):
        print_error(f"weft: no gateway answers at {args.url!r}: `weft serve` starts one")
        return 1
    url = args.url or (DEFAULT_URL if not flags and is_gateway(DEFAULT_URL) else None)
    with TakenSignals() as signals:
        try:
            if url is not None:
                return run_with_gateway(command, folder, url.rstrip("/"), signals)
            gateway = start_gateway(flags, pause=signals.pause)
            try:
                return run_with_gateway(command, folder, gateway.url, signals, gateway)
            finally:
                gateway.stop(signals.pause)
                with suppress(OSError):  # the terminal may be closed
                    print_recorded(gateway.read_recorded(), args)
        except Ended as ended:
            return ended.code


def run_with_gateway(
    command: list[str],
    folder: str | None,
    url: str,
    signals: TakenSignals,
    gateway: "StartedGateway | None" = None,
) -> int:
    """Run the program with a gateway at this URL; `gateway` is the one that was started for it."""
    exchanges_before = count_exchanges(url)
    started = time.time()
    own = None if gateway is None else gateway.process.pid
    try:
        with TemporaryDirectory(prefix="weft-run-", ignore_cleanup_errors=True) as files:
            environment = program_environment(command, url, os.environ, Path(files))
            words = with_options(command, url)
            program = Program(words, environment, folder, Path(files))
            code = run_supervised(program, signals, own)
    except OSError as error:
        if error.filename != command[0]:
            raise
        if isinstance(error, FileNotFoundError):
            print_error(f"weft: no program {command[0]!r}")
            return NOT_FOUND
        reason = (error.strerror or str(error)).lower()
        print_error(f"weft: {command[0]!r} cannot be run: {reason}")
        return NOT_EXECUTABLE
    with suppress(OSError):  # the terminal may be closed
        print_requests(command, url, exchanges_before, started, gateway)
    return code


def print_requests(
    command: Sequence[str],
    url: str,
    exchanges_before: int | None,
    started: float,
    gateway: "StartedGateway | None",
) -> None:
    """Say what happened to the program's requests, unless they went to a gateway of its own."""
    if gateway is not None and gateway.process.poll() is not None:
        print_error(f"weft: the gateway ended before the program: {gateway.reason()}")
    elif exchanges_before is not None and count_exchanges(url) == exchanges_before:
        print_error(f"weft: no request of {command[0]!r} arrived at the gateway at {url}")
        print_error("weft: look up how the program sets its base URL, and set it to that URL")
    elif gateway is None:
        print_active(url, started)


def print_recorded(recorded: Any, args: argparse.Namespace) -> None:
    """Say where the gateway recorded, if it recorded anything: the store, the threads and the
    command that shows them.
    """
    if not isinstance(recorded, dict):
        return
    facts = cast(dict[str, Any], recorded)
    names: list[str] = facts.get("threads") or []
    store = str(facts.get("store"))
    is_usual = args.config is None and args.store in (None, os.environ.get("WEFT_STORE"))
    option = "" if is_usual else f" --store {shlex.quote(store)}"
    if len(names) == 1:
        command = f"weft log {shlex.quote(names[0])}{option}"
        print_error(f"weft: recorded in {store!r}, thread {names[0]!r}: `{command}` shows it")
    elif names:
        print_error(
            f"weft: recorded in {store!r}, threads {_list_names(names)}: `weft threads{option}` "
            "lists them"
        )
    if facts.get("pending"):
        print_error(
            f"weft: {facts['pending']} records wait beside the store; the next gateway stores them"
        )
    if facts.get("lost"):
        print_error(
            f"weft: {facts['lost']} records were lost: neither the store nor the journal "
            "could be written"
        )


def print_active(url: str, since: float) -> None:
    """Say which threads of a gateway, which other programs may use too, were active since then."""
    from .follow import get

    try:
        with get(url, "/api/threads?limit=50", 5.0) as reply:
            rows: list[dict[str, Any]] = json.loads(reply.read())["threads"]
        names = [
            row["name"] for row in rows if row["updated"] >= since and row.get("parent") is None
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return  # it has keys, or does not record
    if names:
        what = "thread" if len(names) == 1 else "threads"
        command = f"weft log {shlex.quote(names[0])}" if len(names) == 1 else "weft threads"
        print_error(
            f"weft: recorded by the gateway at {url}, {what} {_list_names(names)}: "
            f"`{command}` shows {'it' if len(names) == 1 else 'them'}"
        )


def _list_names(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(names) - NAMES_SHOWN
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + (f" and {more} more" if more > 0 else "")


def gateway_flags(args: argparse.Namespace) -> list[str]:
    """The flags of `weft serve` for a new gateway; empty if a running one will do."""
    aliases = [*args.alias, *([] if args.model is None else [f"*={args.model}"])]
    return [
        *([] if args.store is None else [f"--store={args.store}"]),
        *([] if args.config is None else [f"--config={args.config}"]),
        *(f"--upstream={upstream}" for upstream in args.upstream),
        *(f"--alias={alias}" for alias in aliases),
    ]


def find_client(command: Sequence[str]) -> tuple[Client, int]:
    """The client that a command runs, and the index of its name: `npx codex` runs Codex."""
    for index, word in enumerate(command[:4]):
        name = os.path.basename(word).removesuffix(".exe").removesuffix(".js").partition("@")[0]
        for client in CLIENTS:
            if name in client.names:
                return client, index
        if index == 0 and name not in RUNNERS:
            break
    return OTHER_CLIENT, 0


def with_options(command: list[str], url: str) -> list[str]:
    """The command with the options that its program needs to use the gateway."""
    client, index = find_client(command)
    options = [option.replace("{url}", url) for option in client.options]
    return [*command[: index + 1], *options, *command[index + 1 :]]


def program_environment(
    command: Sequence[str], url: str, environ: Environment, folder: Path
) -> dict[str, str]:
    """The environment of the program: the base URLs, and placeholder keys if it needs keys to
    start.
    """
    client, _ = find_client(command)
    variables = {} if client.variables is None else client.variables(url, environ, folder)
    return {
        **environ,
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
        **placeholder_keys(client, environ),
        **variables,
    }


def placeholder_keys(client: Client, environ: Environment) -> dict[str, str]:
    """Keys for programs that do not start without one; a key that is set stays.

    Claude Code and Codex may be logged in, and a key would replace the login. On macOS the login
    is in the keychain.
    """
    if client.login is not None:
        is_logged_in = sys.platform == "darwin" or Path(client.login).expanduser().exists()
        if is_logged_in or any(environ.get(variable) for variable in client.keys):
            return {}
    return {variable: PLACEHOLDER_KEY for variable in client.keys if not environ.get(variable)}


def merge_json(base: dict[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two JSON objects; if both have a value that is not an object, `over` wins."""
    merged = dict(base)
    for key, value in over.items():
        old: Any = merged.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            merged[key] = merge_json(cast(dict[str, Any], old), cast(dict[str, Any], value))
        else:
            merged[key] = value
    return merged


class StartedGateway:
    """A gateway that this process started, and that ends with it.

    The gateway reads a pipe that only this process (and the supervisor of its program) holds. When
    they end, however that happens, the gateway reads the end of the file and stops.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", log: IO[str]) -> None:
        self.process = process
        self.url = ""
        self._log = log

    def stop(self, pause: Callable[[float], None] = time.sleep) -> None:
        """Stop the gateway. It finishes its running requests; a second signal to this process, or
        `STOP_SECONDS`, end it at once.
        """
        deadline = time.monotonic() + STOP_SECONDS
        self.process.terminate()
        try:
            while self.process.poll() is None and time.monotonic() < deadline:
                pause(POLL_SECONDS)
        except Ended:
            pass
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()

    def read_recorded(self) -> Any:
        """What the stopped gateway recorded, as it says in its last line; `None` if it does not."""
        if self.process.stdout is None:
            return None
        with self.process.stdout as stdout:
            os.set_blocking(stdout.fileno(), True)
            last_line = stdout.read().strip().rpartition(b"\n")[2]
        self._log.close()
        try:
            return json.loads(last_line)
        except ValueError:
            return None

    def reason(self) -> str:
        """The last line of its log, which says why it ended."""
        self._log.seek(0)
        line = self._log.read().strip().rpartition("\n")[2].removeprefix("weft: ")
        code = self.process.poll()
        return line or (f"signal {-code}" if code is not None and code < 0 else f"exit code {code}")


def start_gateway(
    flags: Sequence[str],
    environ: Environment | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> StartedGateway:
    """Start a gateway on a free port; raises `ConfigError` on failure.

    Its log goes to a temporary file, because it would disturb the program's screen. `pause` sleeps,
    and may raise an exception to give up.
    """
    from weft.errors import ConfigError

    from .serve import require_server

    require_server()
    flags, environ = hide_store(flags, os.environ if environ is None else environ)
    command = [sys.executable, "-c", LAUNCH_CODE, "serve", "--port", "0", "--no-sample"]
    log = TemporaryFile("w+")  # noqa: SIM115 - it is open as long as the gateway
    process = subprocess.Popen(
        [*command, "--until-eof", *flags],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        bufsize=0,
        start_new_session=True,  # Ctrl-C in the terminal must not end the gateway
    )
    gateway = StartedGateway(process, log)
    try:
        gateway.url = _await_url(process, pause)
        if gateway.url and await_gateway(gateway.url, pause):
            return gateway
    except BaseException:
        gateway.stop()
        raise
    gateway.stop()
    reason = gateway.reason()
    raise ConfigError(f"the gateway did not start: {reason or 'it gave no reason'}")


def _await_url(process: "subprocess.Popen[bytes]", pause: Callable[[float], None]) -> str:
    """The URL in the first line of a starting gateway; empty if it ends or is too late."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    line = b""
    deadline = time.monotonic() + START_SECONDS
    while b"\n" not in line and time.monotonic() < deadline:
        try:
            part = os.read(process.stdout.fileno(), 4096)
        except BlockingIOError:
            pause(POLL_SECONDS)
            continue
        if not part:
            return ""
        line += part
    url = line.partition(b"\n")[0].strip().rpartition(b" ")[2].decode(errors="replace")
    return url if url.startswith("http") else ""


def hide_store(flags: Sequence[str], environ: Environment) -> tuple[Sequence[str], Environment]:
    """Move the store from the flags of a gateway to its environment.

    Its URL may contain a password, and other users can see the arguments of a process. The flag
    stays only if the config file names another store: the file wins over the environment.
    """
    stores = [flag.partition("=")[2] for flag in flags if flag.startswith("--store=")]
    files = [flag.partition("=")[2] for flag in flags if flag.startswith("--config=")]
    if not stores:
        return flags, environ
    if files:
        from weft.client import load_toml

        if load_toml(files[-1]).get("store") not in (None, stores[-1]):
            return flags, environ
    other_flags = [flag for flag in flags if not flag.startswith("--store=")]
    return other_flags, {**environ, "WEFT_STORE": stores[-1]}


def await_gateway(url: str, pause: Callable[[float], None]) -> bool:
    """Whether the gateway answers in time."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if is_gateway(url):
            return True
        pause(POLL_SECONDS)
    return False


def is_gateway(url: str, path: str | None = None) -> bool:
    """Whether a Weft gateway answers at this URL, and with a path also at that path."""
    try:
        with urlopen(f"{url}/healthz", timeout=1) as reply:
            is_weft = b'"weft"' in reply.read(1000)
        if is_weft and path is not None:
            urlopen(f"{url}{path}", timeout=10).close()
        return is_weft
    except (URLError, OSError, ValueError):
        return False


def count_exchanges(url: str) -> int | None:
    """How many model requests the gateway has had; `None` if it does not say."""
    try:
        with urlopen(f"{url}/healthz", timeout=5) as reply:
            count = json.loads(reply.read(1000)).get("exchanges")
    except (URLError, OSError, ValueError):
        return None
    return count if isinstance(count, int) else None
