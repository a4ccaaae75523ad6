"""`weft translate`: one body, one stream, or with `--jsonl` one job per line.

A line is a job, or a body alone. The flags are the defaults for fields that a job omits. Each line
gets its own result or error, in order.
"""

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, BinaryIO

from weft import exact_json
from weft.catalog import load_catalog
from weft.codec import CODECS
from weft.errors import Refused, UpstreamFailed
from weft.model import loss_json, loss_lines
from weft.translation import StreamTranslator, translate, translate_response

from .console import print_error
from .main import RawFormatter

SYSTEM_POLICIES = ("auto", "inline", "demote", "merge")
KINDS = ("request", "response", "stream")
CACHE_POLICIES = ("keep", "auto")
OPTION_CHECKS: dict[str, Callable[[Any], bool]] = {
    "model": lambda value: isinstance(value, str),
    "system": lambda value: value in SYSTEM_POLICIES,
    "strict": lambda value: isinstance(value, bool),
    "cache": lambda value: value in CACHE_POLICIES,
    "upstream": lambda value: isinstance(value, str),
    "created": lambda value: isinstance(value, int),
}
"""The options of a job, and the check of each value."""

JOB_KEYS = frozenset({"source", "target", "body", "sse"})
"""A line without any of these is a body."""

EPILOG = f"""PROTOCOL is one of {", ".join(sorted(CODECS))}.

With --jsonl each line is a body, or a job such as
  {{"id": "1", "source": "anthropic", "target": "openai-chat", "body": {{"model": ...}}}}
  {{"id": "2", "kind": "stream", "sse": "event: ...", "options": {{"created": 0}}}}
A line that fails gets an error as its result, and the exit code is still 0.
Flags give the defaults for what a line omits: --from, --to, --kind, --model, --system, --cache,
--upstream and --strict."""

FLAGS = {"source": "--from", "target": "--to"}
LINE_FORMAT = 'a line is a body, or {"id", "source", "target", "body"}'


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = RawFormatter
    parser.epilog = EPILOG
    parser.add_argument("file", nargs="?", help="the body (default: standard input)")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="PROTOCOL",
        help="the protocol of the body (required without --jsonl)",
    )
    parser.add_argument(
        "--to",
        dest="target",
        metavar="PROTOCOL",
        help="the protocol to translate to (required without --jsonl)",
    )
    parser.add_argument(
        "--kind", choices=KINDS, default="request", help="what the body is (default request)"
    )
    parser.add_argument("--model", help="the model's name for the target")
    parser.add_argument(
        "--system",
        choices=SYSTEM_POLICIES,
        default="auto",
        help="what to do with later system messages (not at the start): inline keeps them in "
        "place, demote makes them user messages, merge joins all system messages at the start, "
        "auto keeps them where the target accepts them and demotes the others",
    )
    parser.add_argument(
        "--cache",
        choices=CACHE_POLICIES,
        default="keep",
        help="keep the body's own cache breakpoints, or set them automatically",
    )
    parser.add_argument("--config", metavar="FILE", help="a TOML file with [[model]] tables")
    parser.add_argument(
        "--upstream", metavar="NAME", help="use the [[model]] tables for this upstream"
    )
    parser.add_argument(
        "--strict", action="store_true", help="refuse a translation that loses meaning"
    )
    parser.add_argument(
        "--sidecar",
        metavar="FILE",
        help="a sidecar from --save-sidecar, which restores the original",
    )
    parser.add_argument(
        "--save-sidecar",
        metavar="FILE",
        help="save the sidecar, with which the original can be restored",
    )
    parser.add_argument(
        "--jsonl", action="store_true", help="read one job per line, write one result per line"
    )
    parser.add_argument(
        "--json", action="store_true", help="print body, losses and sidecar as one object"
    )


def run(args: argparse.Namespace) -> int:
    if args.jsonl:
        with open_input(args.file) as source:
            return run_lines(source, sys.stdout.buffer, default_job(args))
    if args.source is None or args.target is None:
        raise Refused("--from and --to are required", param="translate")
    with open_input(args.file) as source:
        data = source.read()
    job = default_job(args) | {"sse" if args.kind == "stream" else "body": data}
    result = JOBS[args.kind](job)
    if args.save_sidecar:
        from pathlib import Path

        from weft.store import write_private  # loads a database

        write_private(Path(args.save_sidecar), exact_json.dumps(result["sidecar"]))
    write_result(result, args.json)
    return 0


def default_job(args: argparse.Namespace) -> dict[str, Any]:
    """A job with the values of the flags, without a body."""
    return {
        "source": args.source,
        "target": args.target,
        "kind": args.kind,
        "options": {"model": args.model, "system": args.system, "strict": args.strict}
        | {"cache": args.cache, "upstream": args.upstream},
        "catalog": load_catalog(args.config),
        "sidecar": read_sidecar(args.sidecar),
    }


def write_result(result: dict[str, Any], as_json: bool) -> None:
    """Print the body on stdout and the losses on stderr, or everything as one JSON object."""
    out = sys.stdout.buffer
    if as_json:
        out.write(exact_json.dumps(result_json(result)) + b"\n")
        return
    text: bytes | str = result["sse"] if "sse" in result else result["body"]
    out.write(text if isinstance(text, bytes) else text.encode())
    out.write(b"" if "sse" in result else b"\n")
    for line in loss_lines(result["losses"]):
        print_error(line)


def result_json(result: dict[str, Any]) -> dict[str, Any]:
    """A result as JSON."""
    data = dict(result)
    data["losses"] = [loss_json(loss) for loss in result["losses"]]
    if isinstance(data.get("body"), bytes):
        data["body"] = exact_json.Fragment(data["body"])
    return data


def run_lines(source: BinaryIO, out: BinaryIO, defaults: dict[str, Any]) -> int:
    """Run one job per line; a bad line gets an error and the others continue."""
    for number, line in enumerate(source, start=1):
        if line.strip():
            out.write(exact_json.dumps(run_line(line, number, defaults)) + b"\n")
            out.flush()
    return 0


def run_line(line: bytes, number: int, defaults: dict[str, Any]) -> dict[str, Any]:
    """The result of the job in a line, or its error."""
    job: dict[str, Any] = {}
    try:
        job = read_job(line, number, defaults)
        kind = str(job["kind"])
        if kind not in JOBS:
            raise Refused(f"{kind!r} is not one of {', '.join(JOBS)}", param="kind")
        return {"id": job.get("id"), **result_json(JOBS[kind](job))}
    except Refused as error:
        refused = error
    except UpstreamFailed as error:
        refused = Refused(str(error), param="body", status=error.status, type="api_error")
    return {
        "id": job.get("id"),
        "error": {
            "status": refused.status,
            "type": refused.type,
            "message": refused.message,
            "param": refused.param,
            "line": number,
        },
    }


def read_job(line: bytes, number: int, defaults: dict[str, Any]) -> dict[str, Any]:
    """The job of a line; the id of a body alone is its line number."""
    try:
        value: Any = exact_json.loads(line)
    except exact_json.JSONDecodeError as error:
        raise Refused(f"the line is not JSON: {error}", param="line") from None
    if not isinstance(value, dict):
        raise Refused(f"each line is a JSON object: {LINE_FORMAT}", param="line")
    job: dict[str, Any] = value  # pyright: ignore[reportUnknownVariableType] - keys are strings
    if not JOB_KEYS & job.keys():
        job = {"id": number, "body": job}
    options: Any = job.get("options") or {}
    if isinstance(options, dict):
        options = defaults["options"] | options
    return defaults | job | {"options": options, "catalog": defaults["catalog"]}


def translate_request_job(job: dict[str, Any]) -> dict[str, Any]:
    translation = translate(
        job_body(job),
        job_protocol(job, "source"),
        job_protocol(job, "target"),
        sidecar=job.get("sidecar"),
        catalog=job["catalog"],
        **job_options(job, ("model", "system", "strict", "cache", "upstream")),
    )
    return {"body": translation.body, "losses": translation.losses, "sidecar": translation.sidecar}


def translate_response_job(job: dict[str, Any]) -> dict[str, Any]:
    translation = translate_response(
        job_body(job),
        job_protocol(job, "source"),
        job_protocol(job, "target"),
        sidecar=job.get("sidecar"),
        **job_options(job, ("created",)),
    )
    return {"body": translation.body, "losses": translation.losses, "sidecar": translation.sidecar}


def translate_stream_job(job: dict[str, Any]) -> dict[str, Any]:
    stream = StreamTranslator(
        job_protocol(job, "source"),
        job_protocol(job, "target"),
        job.get("sidecar"),
        **job_options(job, ("created",)),
    )
    sse = job.get("sse")
    if not isinstance(sse, str | bytes):
        raise Refused('the text of the stream is missing: {"sse": "..."}', param="sse")
    text = stream.feed(sse.encode() if isinstance(sse, str) else sse) + stream.close()
    return {
        "sse": text.decode(),
        "losses": stream.losses,
        "sidecar": stream.answer_sidecar,
    }


JOBS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "request": translate_request_job,
    "response": translate_response_job,
    "stream": translate_stream_job,
}


def job_body(job: dict[str, Any]) -> Any:
    """The body of a job; raises `Refused` if it is missing."""
    body = job.get("body")
    if not isinstance(body, dict | bytes | str):
        raise Refused(f"the body is missing: {LINE_FORMAT}", param="body")
    return body  # pyright: ignore[reportUnknownVariableType]


def job_protocol(job: dict[str, Any], key: str) -> str:
    """The `source` or `target` of a job; raises `Refused` if it is missing."""
    name = job.get(key)
    if not isinstance(name, str):
        raise Refused(f"the protocol is missing: {FLAGS[key]}, or {LINE_FORMAT}", param=key)
    return name


def job_options(job: dict[str, Any], allowed: tuple[str, ...]) -> dict[str, Any]:
    """The options of a job that its kind accepts; raises `Refused` for an unknown or wrong one."""
    options: Any = job.get("options") or {}
    if not isinstance(options, dict):
        raise Refused("must be an object", param="options")
    for key in options:  # pyright: ignore[reportUnknownVariableType]
        if key not in OPTION_CHECKS:
            raise Refused(f"is not one of {', '.join(OPTION_CHECKS)}", param=f"options.{key}")
        if options[key] is not None and not OPTION_CHECKS[key](options[key]):
            raise Refused(f"cannot be {options[key]!r}", param=f"options.{key}")
    return {key: options[key] for key in allowed if options.get(key) is not None}  # pyright: ignore[reportUnknownMemberType]


def read_sidecar(path: str | None) -> Any:
    """The sidecar in a file; `None` without a path."""
    if path is None:
        return None
    with open(path, "rb") as file:
        try:
            return exact_json.loads(file.read())
        except exact_json.JSONDecodeError as error:
            raise Refused(f"{path} is not JSON: {error}", param="--sidecar") from None


def open_input(path: str | None) -> AbstractContextManager[BinaryIO]:
    """The file, or standard input, which stays open."""
    return nullcontext(sys.stdin.buffer) if path in (None, "-") else open(path, "rb")
