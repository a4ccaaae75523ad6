"""A copy of a store that is in use has its threads."""

import shutil
import time
from pathlib import Path

from servers import SECONDS, Scripted, post, scripted_upstream, weft_serve
from weft.store import open_store


def test_a_copy_of_the_file_alone_has_what_was_recorded(tmp_path: Path) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
    copy = tmp_path / "copy.db"
    with scripted_upstream() as upstream:
        upstream.then(Scripted(b"{}", status=500, kind="application/json"))
        with weft_serve(tmp_path, "--upstream", f"u=openai-chat:{upstream.url}") as gateway:
            post(f"{gateway.url}/v1/chat/completions", body)
            deadline = time.monotonic() + SECONDS
            names: list[str] = []
            while not names:
                assert time.monotonic() < deadline, "the copy stays empty"
                time.sleep(0.5)
                shutil.copy(gateway.store, copy)
                store = open_store(str(copy))
                names = [record.name for record in store.threads()]
                store.close()
                for file in tmp_path.glob("copy.db*"):
                    file.unlink()
