"""`weft run -- CMD`: run a program whose model calls go through a gateway.

A gateway on the default port is used if one is running; otherwise one is started on a free port and
stopped after the program. The program is configured in the way that it really reads: most read the
base-URL variables, Codex only an option. If no request arrived in the end, `weft run` says so.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from .console import print_error

DEFAULT_URL = "http://127.0.0.1:8787"
START_SECONDS = 20.0
NOT_FOUND = 127
KEY_VARIABLES = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY")
LOGINS = {
    "claude": (("ANTHROPIC_API_KEY",), "~/.claude/.credentials.json"),
    "codex": (("CODEX_API_KEY", "OPENAI_API_KEY"), "~/.codex/auth.json"),
}
"""The key variables of clients that can be logged in, and the file of the login.

On macOS the login is in the keychain.
"""
LAUNCH = "from weft.cli import entry; entry()"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options and the command after `--`."""
    parser.usage = (
        "weft run [--url URL] [--store PATH] [--upstream NAME=PROTOCOL:URL] -- CMD [ARG ...]"
    )
    parser.add_argument(
        "--url", help=f"the URL of a running gateway (default: {DEFAULT_URL}, or a new one)"
    )
    parser.add_argument("--store", metavar="PATH", help="the store of a new gateway")
    parser.add_argument(
        "--upstream",
        action="append",
        metavar="NAME=PROTOCOL:URL",
        help="an upstream of a new gateway, as in `weft serve`; may be repeated",
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="CMD", help="the program to run")


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit code."""
    command: list[str] = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not command:
        print_error("weft: run needs a command: weft run -- CMD")
        return 2
    if args.url is not None and not answers(args.url.rstrip("/")):
        print_error(f"weft: no gateway answers at {args.url!r}: `weft serve` starts one")
        return 1
    gateway = None
    is_own = args.store is not None or bool(args.upstream)
    url = args.url or (DEFAULT_URL if not is_own and answers(DEFAULT_URL) else None)
    if url is None:
        gateway, url = start_gateway(args.store, args.upstream or [])
    url = url.rstrip("/")
    try:
        before = count_exchanges(url)
        code = run_child(with_options(command, url), url)
        if before is not None and count_exchanges(url) == before:
            print_error(f"weft: no request of {command[0]!r} arrived at the gateway at {url}")
            print_error("weft: look up how the program sets its base URL, and set it to that URL")
        return code
    finally:
        if gateway is not None:
            stop_gateway(gateway)


def with_options(command: list[str], url: str) -> list[str]:
    """The command with the options that its program needs to use the gateway.

    Codex ignores OPENAI_BASE_URL and reads its configuration only.
    https://github.com/openai/codex/blob/main/docs/config.md
    """
    if os.path.basename(command[0]) == "codex":
        return [command[0], "-c", f'openai_base_url="{url}/v1"', *command[1:]]
    return command


def base_urls(url: str) -> dict[str, str]:
    """The base-URL variables of the vendors' clients."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


def placeholder_keys(program: str) -> dict[str, str]:
    """Keys for programs that do not start without one; a key that is set stays.

    Claude Code and Codex may be logged in, and a key would replace the login.
    """
    name = os.path.basename(program)
    if name in LOGINS:
        variables, login = LOGINS[name]
        if sys.platform == "darwin" or Path(login).expanduser().exists():
            return {}
    else:
        variables = KEY_VARIABLES
    if any(os.environ.get(variable) for variable in variables if name in LOGINS):
        return {}
    return {variable: "weft" for variable in variables if not os.environ.get(variable)}


def run_child(command: list[str], url: str) -> int:
    """Run the program in the foreground; Ctrl-C goes to it, not to `weft run`."""
    original = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(
            command,
            env={**os.environ, **base_urls(url), **placeholder_keys(command[0])},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        code = child.wait()
    except FileNotFoundError:
        print_error(f"weft: no program {command[0]!r}")
        return NOT_FOUND
    finally:
        signal.signal(signal.SIGINT, original)
    return code if code >= 0 else 128 - code


def start_gateway(store: str | None, upstreams: list[str]) -> tuple["subprocess.Popen[str]", str]:
    """Start a gateway on a free port and return it with its URL; raises `ConfigError` on failure.

    Its output is not shown, because it would disturb the program's screen.
    """
    from weft.errors import ConfigError

    from .serve import require_server

    require_server()
    command = [sys.executable, "-c", LAUNCH, "serve", "--port", "0", "--no-sample"]
    command += [] if store is None else ["--store", store]
    command += [f"--upstream={upstream}" for upstream in upstreams]
    gateway = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal must not end the gateway
    )
    line = gateway.stdout.readline() if gateway.stdout is not None else ""
    url = line.strip().rpartition(" ")[2]
    if not url.startswith("http") or not await_gateway(url):
        gateway.kill()
        raise ConfigError("the gateway did not start; run `weft serve` to see why")
    return gateway, url


def stop_gateway(gateway: "subprocess.Popen[str]") -> None:
    """Stop the gateway and close its pipe."""
    gateway.terminate()
    gateway.wait()
    if gateway.stdout is not None:
        gateway.stdout.close()


def await_gateway(url: str) -> bool:
    """Whether the gateway answers in time."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if answers(url):
            return True
        time.sleep(0.05)
    return False


def answers(url: str) -> bool:
    """Whether a Weft gateway answers at this URL."""
    try:
        with urlopen(f"{url}/healthz", timeout=1) as reply:
            return b'"weft"' in reply.read(1000)
    except (URLError, OSError, ValueError):
        return False


def count_exchanges(url: str) -> int | None:
    """How many model requests the gateway has had; `None` if it does not say."""
    import json

    try:
        with urlopen(f"{url}/healthz", timeout=5) as reply:
            count = json.loads(reply.read(1000)).get("exchanges")
    except (URLError, OSError, ValueError):
        return None
    return count if isinstance(count, int) else None
