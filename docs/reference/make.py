"""Write the generated parts of the reference: run `python docs/reference/make.py`."""

from pathlib import Path

from weft.model import LOSS_CODES

HERE = Path(__file__).parent
MARK = "<!-- generated: python docs/reference/make.py -->"


def losses() -> str:
    """The table of loss codes."""
    lines = ["| code | kind | level | what | why |", "| --- | --- | --- | --- | --- |"]
    for code, entry in sorted(LOSS_CODES.items()):
        what = entry.what.replace("{detail}", "*detail*")
        lines.append(f"| `{code}` | {entry.kind} | {entry.level} | {what} | {entry.why} |")
    return "\n".join(lines)


PARTS = {"losses.md": losses}


def pages() -> dict[Path, str]:
    """Each page with its generated part, which ends the page."""
    made: dict[Path, str] = {}
    for name, part in PARTS.items():
        page = HERE / name
        head = page.read_text().partition(MARK)[0].rstrip()
        made[page] = f"{head}\n\n{MARK}\n\n{part()}\n"
    return made


if __name__ == "__main__":
    for page, text in pages().items():
        page.write_text(text)
