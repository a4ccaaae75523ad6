"""The page in a real browser: first paint, opening a long thread, its graph, 500 deltas a second.

    python bench/page.py [--messages 20000] [--seconds 10] [--runs 7]

Times depend on the machine and on what else runs on it. So the load is printed, each opening is
repeated, and the fastest and the median run are shown. *Cold* is a new browser profile, for the
rows also a server that has not read the thread before; *warm* is the next opening in that profile.
Chromium is found, or installed, as for the tests.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import monotonic, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import weft.thread
from browser import chromium
from servers import Gateway, Scripted, weft_serve
from slow_upstream import SlowUpstream, closing, deltas, opening, slow_upstream

DELTAS_A_SECOND = 500
WRITES_A_SECOND = 100
"""Vendors send several deltas in a write; a write for each would measure the sender."""

MODEL = "scripted-model"
KEYS = 40
"""How many keys are pressed while the answer streams."""

MEASURE = """
window.figures = {longest: 0, over50: 0, frames: 0, latencies: [], deltas: 0, painted: null};
new PerformanceObserver((list) => {
  for (const {duration} of list.getEntries()) {
    window.figures.longest = Math.max(window.figures.longest, duration);
    window.figures.over50 += 1;
  }
}).observe({entryTypes: ['longtask']});
const tick = () => { window.figures.frames += 1; requestAnimationFrame(tick); };
requestAnimationFrame(tick);
addEventListener('keydown', ({timeStamp}) => requestAnimationFrame(() =>
  setTimeout(() => window.figures.latencies.push(performance.now() - timeStamp))), true);
const Original = window.WebSocket;
window.WebSocket = class extends Original {
  constructor(...args) {
    super(...args);
    this.addEventListener('message', ({data}) => {
      if (data.includes('"text_delta"')) window.figures.deltas += 1;
    });
  }
};
new MutationObserver(() => {
  if (window.figures.painted !== null) return;
  if (!document.querySelector('#conversation > [data-id]')) return;
  window.figures.painted = 0;
  requestAnimationFrame(() => setTimeout(() => { window.figures.painted = performance.now(); }));
}).observe(document, {childList: true, subtree: true});
"""


class Paced(Scripted):
    """An answer whose deltas are sent at a fixed rate: a late write does not delay the next."""

    def __init__(self, words: Sequence[str], rate: float) -> None:
        super().__init__()
        self._words, self._rate = words, rate
        self.sent_rate = 0.0
        """The deltas a second that were really sent."""
        self.pieces = self._pieces()  # pyright: ignore[reportAttributeAccessIssue]

    def _pieces(self) -> Iterator[bytes]:
        yield from opening()
        size = max(1, round(self._rate / WRITES_A_SECOND))
        start = monotonic()
        for number in range(0, len(self._words), size):
            sleep(max(0.0, start + number / self._rate - monotonic()))
            yield b"".join(deltas(*self._words[number : number + size]))
        self.sent_rate = len(self._words) / (monotonic() - start)
        yield from closing()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--runs", type=int, default=7)
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        slow_upstream() as upstream,
        chromium() as browser,
    ):
        long, empty = Path(folder, "long"), Path(folder, "empty")
        for path in (long, empty):
            path.mkdir()
        fill(long, args.messages)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        open_pages(browser, empty, "an empty store", args.runs)
        open_pages(browser, long, f"{args.messages:,} messages", args.runs)
        options = f"--upstream=mock=anthropic:{upstream.url}"
        with weft_serve(long, options) as gateway:
            stream(browser, gateway, upstream, args.seconds)
        print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


def fill(folder: Path, count: int) -> None:
    with weft.thread.open(folder / "weft.db", "long") as thread, thread.batch():
        for number in range(count // 2):
            thread.user(f"Question {number}: what about `file_{number}.py`? Please look at it.")
            thread.assistant(f"Answer {number}: **{number * 7}** lines.\n\n- one\n- two\n\nFine.")


def new_page(browser: Any) -> Any:
    page = browser.new_context(viewport={"width": 1280, "height": 900}).new_page()
    page.add_init_script(MEASURE)
    return page


def open_pages(browser: Any, folder: Path, name: str, runs: int) -> None:
    """Open the page with a new server each time: cold, warm, and the graph of a long thread."""
    figures: dict[str, list[float]] = {}
    for _ in range(runs):
        with weft_serve(folder, "--no-sample") as gateway:
            page, before = new_page(browser), cpu_seconds(gateway)
            for state in ("cold", "warm"):
                page.goto("about:blank")
                page.goto(f"{gateway.url}/#thread=long")
                page.wait_for_selector("body[data-ready]")
                add_opening(figures, state, page)
                cpu = cpu_seconds(gateway) - before
                figures.setdefault(f"{state}: CPU time of the server", []).append(cpu * 1000)
                before += cpu
            if page.query_selector("#conversation > [data-id]"):
                page.wait_for_timeout(1000)  # the gauge and the log
                add_graph(figures, page)
            page.context.close()
    for label, values in figures.items():
        values.sort()
        print(
            f"{name}, {label}: fastest {values[0]:.0f} ms, median {values[len(values) // 2]:.0f} ms"
        )


def add_opening(figures: dict[str, list[float]], state: str, page: Any) -> None:
    paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    figures.setdefault(f"{state}: first contentful paint", []).append(paint)
    if page.query_selector("#conversation > [data-id]"):
        page.wait_for_function("() => window.figures.painted > 0")
        rows = page.evaluate("window.figures.painted")
        figures.setdefault(f"{state}: first rows", []).append(rows)


def add_graph(figures: dict[str, list[float]], page: Any) -> None:
    start = page.evaluate("performance.now()")
    page.click("#tab-graph")
    page.wait_for_selector(".graph-row")
    figures.setdefault("graph", []).append(page.evaluate("performance.now()") - start)
    page.wait_for_function(
        "() => !/reading|^$/.test(document.querySelector('#graph-facts').textContent)"
    )
    figures.setdefault("graph, all commits", []).append(page.evaluate("performance.now()") - start)


def stream(browser: Any, gateway: Gateway, upstream: SlowUpstream, seconds: float) -> None:
    words = [f"word{number} " for number in range(int(DELTAS_A_SECOND * seconds))]
    answer = Paced(words, DELTAS_A_SECOND)
    upstream.answers["be quick"] = lambda: answer
    page = new_page(browser)
    page.goto(f"{gateway.url}/#thread=quick")
    page.wait_for_selector("body[data-branch]")
    page.wait_for_selector("#offline", state="hidden")
    page.fill("#model", MODEL)
    page.press("#model", "Tab")
    page.fill("#words", "be quick")
    page.press("#words", "Enter")
    page.wait_for_selector(".streaming")
    page.evaluate(
        "Object.assign(window.figures, {longest: 0, over50: 0, frames: 0, latencies: []})"
    )
    start, before = page.evaluate("performance.now()"), cpu_seconds(gateway)
    for _ in range(KEYS):
        page.keyboard.press("x")
        page.wait_for_timeout(seconds * 1000 / KEYS / 2)
    page.wait_for_selector("#send:not([hidden])", timeout=(seconds * 20 + 60) * 1000)
    figures = page.evaluate("window.figures")
    elapsed = (page.evaluate("performance.now()") - start) / 1000
    latencies = sorted(figures["latencies"])
    cpu = cpu_seconds(gateway) - before
    print(
        f"{len(words):,} deltas sent at {answer.sent_rate:.0f}/s, shown after {elapsed:.1f} s in "
        f"{figures['deltas']:,} frames of the socket; server {cpu:.1f} s CPU: "
        f"{figures['frames'] / elapsed:.0f} frames/s, longest task {figures['longest']:.0f} ms, "
        f"{figures['over50']} above 50 ms; key to frame: median "
        f"{latencies[len(latencies) // 2]:.0f} ms, worst {latencies[-1]:.0f} ms"
    )
    page.context.close()


def cpu_seconds(gateway: Gateway) -> float:
    """The CPU time of the server so far (Linux)."""
    fields = Path(f"/proc/{gateway.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
