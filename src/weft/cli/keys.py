"""`weft keys`: keys for the clients of the gateway."""

import argparse
import hashlib
import json
import secrets
import sys

from weft.errors import ConfigError

from .main import nonempty

PREFIX = "weft-"
"""The start of every new key, so that secret scanners and people recognise one."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    parser.description = (
        "Make a key for a client of the gateway, or hash one that you already have. The gateway's "
        "config file has only the hashes."
    )
    parser.add_argument(
        "action", choices=("new", "hash"), help="make a key, or hash one from stdin"
    )
    parser.add_argument(
        "name", nargs="?", type=nonempty, help="the client that the key is for, such as alice"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Print a key and the lines for `weft.toml`, or the hash of the key on stdin."""
    if args.name is not None:
        from weft.gateway import check_key_name

        check_key_name(args.name)
    is_new = args.action == "new"
    key = PREFIX + secrets.token_urlsafe(32) if is_new else _read_key()
    digest = "sha256:" + hashlib.sha256(key.encode()).hexdigest()
    if args.json:
        facts = {"key": key if is_new else None, "name": args.name, "hash": digest}
        print(json.dumps({name: value for name, value in facts.items() if value is not None}))
        return 0
    if not is_new:
        print(digest)
        return 0
    print(f"key:  {key}")
    print("It is shown only now. For weft.toml:\n")
    print(_config_lines(args.name, digest))
    return 0


def _config_lines(name: str | None, digest: str) -> str:
    if name is None:
        return f'keys = ["{digest}"]'
    return f'[[key]]\nname = {json.dumps(name)}\nhashes = ["{digest}"]'


def _read_key() -> str:
    """The key on the first line of stdin: an argument would be visible to other users."""
    if sys.stdin.isatty():
        from getpass import getpass

        key = getpass("key: ")
    else:
        key = sys.stdin.readline().rstrip("\r\n")
    if not key.strip():
        raise ConfigError("no key: write it to standard input")
    return key.strip()
