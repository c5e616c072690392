"""The exceptions of a traceback: which was first, which was last, and what they said."""

from __future__ import annotations

import pytest

from vllm_logpipe.read.exceptions import find_traceback, read_exceptions, starts_traceback

START = "Traceback (most recent call last):"
FRAMES = f'{START}\n  File "a.py", line 1, in f\n    g(x)\n      ^^^^'
CAUSE = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"

GROUP = """\
  + Exception Group Traceback (most recent call last):
  |   File "a.py", line 1, in f
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "b.py", line 2, in g
    | ValueError: first
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "c.py", line 3, in h
    | KeyError: 'k'
    +------------------------------------"""


def exceptions(body: str) -> list[tuple[str, str]]:
    """Class and text of the exceptions of a body."""
    return [(exception.type, exception.message) for exception in read_exceptions(body)]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (f"{FRAMES}\nValueError: bad", [("ValueError", "bad")]),
        (f"{FRAMES}\nKeyboardInterrupt", [("KeyboardInterrupt", "")]),
        (f"{FRAMES}\nAssertionError:", [("AssertionError", "")]),
        (f"{FRAMES}\nAssertionError: ", [("AssertionError", "")]),
        (f"{FRAMES}\ntorch.OutOfMemoryError: CUDA: x", [("torch.OutOfMemoryError", "CUDA: x")]),
        (
            f"{FRAMES}\nray.exceptions.RayTaskError(ValueError): bad",
            [("ray.exceptions.RayTaskError(ValueError)", "bad")],
        ),
        (
            f"{FRAMES}\npydantic.ValidationError: 1 error\n  Value error, y\n    For more, see z",
            [("pydantic.ValidationError", "1 error\n  Value error, y\n    For more, see z")],
        ),
        (f"{FRAMES}\nRuntimeError: one\n\nthree\n", [("RuntimeError", "one\n\nthree")]),
        (
            f"{FRAMES}\nValueError: bad\n\n{CAUSE}\n\n{FRAMES}\nRuntimeError: worse",
            [("ValueError", "bad"), ("RuntimeError", "worse")],
        ),
        (
            f"{FRAMES}\nKeyError: 'a'\n\n{DURING}\n\n{FRAMES}\nA: b\n\n{CAUSE}\n\n{FRAMES}\nC: d",
            [("KeyError", "'a'"), ("A", "b"), ("C", "d")],
        ),
        (f"It failed\n{FRAMES}\nValueError: bad", [("ValueError", "bad")]),
        (f"{FRAMES}\nA: b\n{FRAMES}\nC: d", [("A", "b"), ("C", "d")]),
        (FRAMES, []),
        (START, []),
        ("", []),
        ("ValueError: bad", []),
        (f"{FRAMES}\n<exception str() failed>", [("", "<exception str() failed>")]),
    ],
)
def test_exceptions_come_in_the_order_printed(body: str, expected: list[tuple[str, str]]) -> None:
    """The cause is first; the text of an exception is all its lines."""
    assert exceptions(body) == expected


def test_an_exception_group_is_one_exception_with_its_parts_as_text() -> None:
    """The borders of a group are left out; what went wrong inside stands in its text."""
    (group,) = read_exceptions(GROUP)
    assert group.type == "ExceptionGroup"
    lines = group.message.split("\n")
    assert lines[0] == "unhandled errors in a TaskGroup (2 sub-exceptions)"
    assert {"ValueError: first", "KeyError: 'k'"} <= set(lines)


@pytest.mark.parametrize(
    ("body", "at"),
    [
        (START, 0),
        (f"x\n{START}", 2),
        (f"he said {START}\n{START}", len(START) + 9),
        (f"he said {START}", -1),
        ("", -1),
        (f"a\n  + Exception Group {START}", 2),
        (f"a\n  {START}", -1),
    ],
)
def test_a_traceback_begins_at_the_start_of_a_line(body: str, at: int) -> None:
    """The words in the middle of a line are no traceback."""
    assert find_traceback(body) == at
    assert starts_traceback(body) == (at == 0)


def test_many_words_of_a_traceback_are_no_trouble() -> None:
    """A body that repeats the start of a traceback many times is read to its end."""
    assert exceptions(f"x {START} " * 20_000) == []
    assert len(exceptions(f"{FRAMES}\nA: b\n" * 2_000)) == 2_000
