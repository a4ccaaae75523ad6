"""`weft run -- CMD`: run a program whose model calls go through a gateway.

A gateway on the default port is used if one is running; otherwise one is started on a free port and
stopped after the program. The base-URL variables are set only for the program.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from urllib.error import URLError
from urllib.request import urlopen

from .console import print_error

DEFAULT_URL = "http://127.0.0.1:8787"
START_SECONDS = 20.0
NOT_FOUND = 127
LAUNCH = "from weft.cli.main import entry; entry()"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options and the command after `--`."""
    parser.usage = "weft run [--url URL] [--store PATH] -- CMD [ARG ...]"
    parser.add_argument(
        "--url", help=f"the URL of a running gateway (default: {DEFAULT_URL}, or a new one)"
    )
    parser.add_argument("--store", metavar="PATH", help="the store of a new gateway")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="CMD", help="the program to run")


def run(args: argparse.Namespace) -> int:
    """Run the program and return its exit code."""
    words: list[str] = args.words[1:] if args.words[:1] == ["--"] else args.words
    if not words:
        print_error("weft: run needs a command: weft run -- CMD")
        return 2
    if args.url is not None and not answers(args.url.rstrip("/")):
        print_error(f"weft: no gateway answers at {args.url!r}: `weft serve` starts one")
        return 1
    gateway = None
    url = args.url or (DEFAULT_URL if args.store is None and answers(DEFAULT_URL) else None)
    if url is None:
        gateway, url = start_gateway(args.store)
    try:
        return run_child(words, url)
    finally:
        if gateway is not None:
            stop_gateway(gateway)


def base_urls(url: str) -> dict[str, str]:
    """The base-URL variables of the vendors' clients."""
    return {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "GOOGLE_GEMINI_BASE_URL": url,
    }


def run_child(words: list[str], url: str) -> int:
    """Run the program in the foreground; Ctrl-C goes to it, not to `weft run`."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        child = subprocess.Popen(
            words,
            env={**os.environ, **base_urls(url)},
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        code = child.wait()
    except FileNotFoundError:
        print_error(f"weft: no program {words[0]!r}")
        return NOT_FOUND
    finally:
        signal.signal(signal.SIGINT, before)
    return code if code >= 0 else 128 - code


def start_gateway(store: str | None) -> tuple["subprocess.Popen[str]", str]:
    """Start a gateway on a free port and return it with its URL; raises `ConfigError` on failure.

    Its output is not shown, because it would disturb the program's screen.
    """
    from weft.errors import ConfigError

    from .serve import require_server

    require_server()
    words = [sys.executable, "-c", LAUNCH, "serve", "--port", "0", "--no-sample"]
    words += [] if store is None else ["--store", store]
    gateway = subprocess.Popen(
        words,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # Ctrl-C in the terminal must not end the gateway
    )
    line = gateway.stdout.readline() if gateway.stdout is not None else ""
    url = line.strip().rpartition(" ")[2]
    if not url.startswith("http") or not await_gateway(url):
        gateway.kill()
        raise ConfigError("the gateway did not start; `weft serve` says why")
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
