"""The memory store: the cost of a transaction depends only on its changes."""

import tracemalloc

import weft

FEW = 64 * 1024  # bytes; copying the tables of the long thread below takes several times as much


def test_a_transaction_does_not_copy_the_tables():
    thread = weft.open()
    with thread.batch():
        for number in range(3000):
            thread.user(f"message {number}")
    tracemalloc.start()
    try:
        with thread.store.transaction():
            thread.user("one more")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < FEW
