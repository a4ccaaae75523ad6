"""`python -m weft` is the command `weft`."""

from weft.cli import entry

if __name__ == "__main__":
    entry()
