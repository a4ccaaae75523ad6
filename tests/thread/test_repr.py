"""The repr of a thread: its name, its branch and its size."""

import weft


def test_a_thread_and_its_compiled_context_have_a_readable_repr() -> None:
    with weft.open(":memory:", "trip") as thread:
        assert repr(thread) == "<Thread 'trip' on 'main': empty>"
        thread.user("hello there")
        thread.assistant("hi")
        compiled = thread.compile()
        assert repr(compiled) == f"<CompiledContext at {compiled.head[:12]}: 2 messages>"
        tokens = compiled.tokens
        assert repr(compiled).endswith(f": 2 messages, {tokens} tokens>")
        expected = f"<Thread 'trip' on 'main' at {compiled.head[:12]}: 2 messages, {tokens} tokens>"
        assert repr(thread) == expected
    assert repr(thread).startswith("<Thread 'trip'")  # a closed one must not fail in a debugger
