"""The line of a traceback that names its error."""

from __future__ import annotations

import pytest

from gaudi_launch.services.diagnosis.exceptions import Exceptions, Line

BEGIN = "Traceback (most recent call last):"
CAUSED = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"


def fed(*lines: str) -> Exceptions:
    """Return what a reader makes of these lines, numbered from 1."""
    found = Exceptions()
    for number, line in enumerate(lines, start=1):
        found.feed(number, line)
    return found


def raised(*lines: str) -> tuple[list[Line], list[Line]]:
    """Return the errors with a traceback, and those without."""
    found = fed(*lines)
    return found.raised, found.loose


def test_each_traceback_has_the_line_of_its_error() -> None:
    assert raised(BEGIN, '  File "a.py", line 1', "ValueError: one", "INFO between", BEGIN) == (
        [(3, "ValueError: one")],
        [],
    )
    assert raised(BEGIN, "ValueError: one", BEGIN, "OSError: two") == (
        [(2, "ValueError: one"), (4, "OSError: two")],
        [],
    )


@pytest.mark.parametrize("link", [CAUSED, DURING])
def test_a_chain_counts_as_its_last_error(link: str) -> None:
    assert raised(BEGIN, "KeyError: 'x'", link, BEGIN, "OSError: two", BEGIN, "ValueError: 3") == (
        [(5, "OSError: two"), (7, "ValueError: 3")],
        [],
    )


def test_a_chain_whose_first_part_is_cut_off_counts_once() -> None:
    assert raised(CAUSED, BEGIN, "OSError: two") == ([(3, "OSError: two")], [])


def test_a_link_within_a_line_of_text_joins_nothing() -> None:
    lines = (BEGIN, "ValueError: one", f"see {CAUSED}", f"see {BEGIN}", BEGIN, "OSError: two")
    assert raised(*lines) == ([(2, "ValueError: one"), (6, "OSError: two")], [])


def test_an_error_without_a_traceback_is_kept_apart() -> None:
    assert raised("ValueError: one", BEGIN, "OSError: two", "KeyError: 3") == (
        [(3, "OSError: two")],
        [(1, "ValueError: one"), (4, "KeyError: 3")],
    )


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: one",
        "ValueError:",
        "ValueError",
        "AssertionError",
        "torch.cuda.OutOfMemoryError: no",
        "a.b.c.d.e.f.g.h.i.j.OddError: ten folders",
        "_queue.Full_Error: x",
        "ExceptionGroup: two",
        "odd.TypeException: x",
        "odd.WorkerExit: 1",
        "odd.WorkerKilled",
        "odd.DeadInterrupt: x",
        "ray.exceptions.RayTaskError(ValueError): odd",
    ],
)
def test_names_of_errors(line: str) -> None:
    assert raised(BEGIN, line) == ([(2, line)], [])
    assert raised(line) == ([], [(1, line)])


@pytest.mark.parametrize(
    "line",
    [
        "ValueErrors: one",
        "value_error: one",
        "ValueError one",
        "an Error: one",
        "  ValueError: within a frame",
        "KeyboardInterrupt",
        "SystemExit: 3",
        "asyncio.exceptions.CancelledError",
        "asyncio.exceptions.CancelledError: odd",
    ],
)
def test_lines_that_name_no_error_of_the_engine(line: str) -> None:
    assert raised(BEGIN, line) == ([], [])


@pytest.mark.parametrize(
    "mark",
    [
        "ERROR 11-21 04:16:31 [engine.py:474] ",
        "ERROR: 11-21 04:16:31 [engine.py:474]",
        "ERROR 11-21 04:16:31.123 ",
        "ERROR 11-21 04:16:31,123456 ",
        "ERROR [engine.py:474] ",
        "ERROR:    ",
        "CRITICAL ",
        "",
    ],
)
def test_a_logged_traceback_is_read_as_one_that_was_printed(mark: str) -> None:
    assert raised(f"{mark}{BEGIN}", f"{mark}ValueError: one") == ([(2, "ValueError: one")], [])


@pytest.mark.parametrize("level", ["WARN", "WARNING", "INFO", "DEBUG"])
def test_what_was_logged_below_an_error_was_survived(level: str) -> None:
    mark = f"{level} 11-21 04:16:31 [hub.py:1] "
    assert raised(f"{mark}{BEGIN}", f"{mark}ValueError: one", "OSError: two") == (
        [],
        [(3, "OSError: two")],
    )


@pytest.mark.parametrize("count", ["1 validation error", "2 validation errors"])
def test_the_reason_of_a_validation_error_is_in_the_next_line_with_words(count: str) -> None:
    error = f"pydantic.ValidationError: {count} for VllmConfig"
    assert raised(BEGIN, error, "", "  Value error, odd", "next", BEGIN, "OSError: two") == (
        [(2, f"{error}:   Value error, odd"), (7, "OSError: two")],
        [],
    )
    mark = "ERROR 11-21 04:16:31 [engine.py:474] "
    assert raised(f"{mark}{BEGIN}", f"{mark}{error}", f"{mark}  Value error, odd") == (
        [(2, f"{error}: Value error, odd")],
        [],
    )


def test_without_a_traceback_the_line_below_a_validation_error_is_not_its_reason() -> None:
    error = "pydantic.ValidationError: 1 validation error for VllmConfig"
    assert raised(error, BEGIN, "OSError: two") == ([(3, "OSError: two")], [(1, error)])


def test_three_hundred_characters_of_an_error_are_kept() -> None:
    text = f"ValueError: {'x' * 288}"
    assert raised(BEGIN, f"{text}yz") == ([(2, text)], [])
    assert raised(f"{text}yz") == ([], [(1, text)])
    error = "pydantic.ValidationError: 1 validation error for VllmConfig"
    (line,), _ = raised(BEGIN, error, "y" * 400)
    assert line == (2, f"{error}: {'y' * (298 - len(error))}")
