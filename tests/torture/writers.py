"""Programs that the torture tests start and kill: `python writers.py VERB STORE NAME COUNT`.

They print a line for every commit that the store has acknowledged.
"""

import sys

import weft


def commit(address: str, name: str, count: int) -> None:
    """Write `count` messages, acknowledging each, with an edit, a pin or a batch in between."""
    with weft.open(address) as thread:
        for number in range(count):
            text = f"{name}-{number}"
            if number % 17 == 11:
                with thread.batch():
                    thread.user(text)
                    thread.assistant(f"{name}-{number}b")
                print(f"{name}-{number}b", flush=True)
            else:
                texts = thread.user(text)
                if number % 13 == 5:
                    thread.pin(texts)
            print(text, flush=True)


if __name__ == "__main__":
    commit(sys.argv[1], sys.argv[2], int(sys.argv[3]))
