"""A real `weft serve` in its own process."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

STOP_SECONDS = 60


@contextmanager
def serving(folder: Path, *options: str) -> Iterator[str]:
    """`weft serve` in a process of its own, on a free port, with `folder` as its home; its URL."""
    weft = Path(sys.executable).with_name("weft")
    command = [str(weft), "serve"]
    environ = {name: value for name, value in os.environ.items() if name != "WEFT_STORE"}
    options = options if "--port" in options else ("--port", "0", *options)
    with (folder / "stderr.txt").open("a+") as errors:
        process = subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            env={**environ, "HOME": str(folder), "WEFT_RECORD_WAIT": "30"},  # machines are busy
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("weft serves on "), (folder / "stderr.txt").read_text()
            yield line.split()[-1]
        finally:
            process.terminate()
            process.communicate(timeout=STOP_SECONDS)
        errors.seek(0)
        assert "Traceback" not in (texts := errors.read()), texts
