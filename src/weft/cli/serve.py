"""`weft serve`: the gateway and the page."""

import argparse
import asyncio
import os
import sys


def configure(parser: argparse.ArgumentParser) -> None:
    """The options; what is left out comes from the config file, then from the environment."""
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 takes any (default 8787)")
    parser.add_argument("--store", metavar="PATH", help="where threads are kept")
    parser.add_argument("--config", metavar="FILE", help="a TOML file with these and more settings")
    parser.add_argument(
        "--upstream",
        metavar="NAME=PROTOCOL:URL",
        action="append",
        default=[],
        help="who answers; protocols: anthropic, openai-chat, openai-responses, gemini (repeatable)",
    )
    parser.add_argument(
        "--no-record", action="store_true", help="relay only: keep nothing of what is said"
    )


def run(args: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from weft.gateway import Flags, read_settings, serve

    flags = Flags(
        host=args.host,
        port=args.port,
        store=args.store,
        config=args.config,
        upstreams=args.upstream,
        record=False if args.no_record else None,
    )
    asyncio.run(serve(read_settings(flags, os.environ), _announce))
    return 0


def _announce(url: str) -> None:
    print(f"weft serves on {url}", flush=True, file=sys.stdout)
