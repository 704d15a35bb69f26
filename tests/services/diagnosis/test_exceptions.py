"""The errors of a log: tracebacks, and lines that report one."""

from __future__ import annotations

import pytest

from gaudi_launch.services.diagnosis.exceptions import Errors
from gaudi_launch.services.log.line import lines_of

BEGIN = "Traceback (most recent call last):"
CAUSED = "The above exception was the direct cause of the following exception:"
DURING = "During handling of the above exception, another exception occurred:"


def errors(*lines: str) -> list[tuple[int, str]]:
    """Return the errors of a log of these lines, each with its number."""
    found = Errors()
    for number, line in lines_of("\n".join(lines)):
        found.feed(number, line)
    return [(error.number, error.text) for error in found.found]


def test_each_traceback_has_the_line_of_its_error() -> None:
    assert errors(BEGIN, '  File "a.py", line 1', "ValueError: one", "INFO between", BEGIN) == [
        (3, "ValueError: one")
    ]
    assert errors(BEGIN, "ValueError: one", BEGIN, "Odd: two") == [
        (2, "ValueError: one"),
        (4, "Odd: two"),
    ]


@pytest.mark.parametrize("link", [CAUSED, DURING])
def test_a_chain_counts_as_its_last_error(link: str) -> None:
    assert errors(BEGIN, "KeyError: 'x'", link, BEGIN, "OSError: two", BEGIN, "ValueError: 3") == [
        (5, "OSError: two"),
        (7, "ValueError: 3"),
    ]
    assert errors(link, BEGIN, "OSError: two") == [(3, "OSError: two")]
    assert errors(BEGIN, "ValueError: one", f"see {link}", BEGIN, "OSError: two") == [
        (2, "ValueError: one"),
        (5, "OSError: two"),
    ]


def test_a_traceback_is_that_of_its_process() -> None:
    one, two = "(Worker_TP0 pid=1) ", "(Worker_TP1 pid=2) "
    lines = (one + BEGIN, two + BEGIN, one + "    code", two + "KeyError: 2", one + "OSError: 1")
    assert errors(*lines) == [(4, "KeyError: 2"), (5, "OSError: 1")]


def test_a_line_that_announces_a_traceback_is_one_error_with_it() -> None:
    mark = "2026-11-21T03:02:41.123456Z ERROR text_generation_launcher: "
    assert errors(f"{mark}Error when initializing model", BEGIN, "OSError: two") == [
        (3, "OSError: two")
    ]
    assert errors(f"{mark}Shard standard error output:", "", "noise", BEGIN, "OSError: two") == [
        (5, "OSError: two")
    ]
    assert errors(f"{mark}odd", "noise", BEGIN, "OSError: two") == [
        (1, "text_generation_launcher: odd"),
        (4, "OSError: two"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "ValueError: one",
        "ValueError:",
        "AssertionError",
        "Exception: WorkerProc initialization failed",
        "torch.cuda.OutOfMemoryError: no",
        "grpc._channel._InactiveRpcError: <x>",
        "ExceptionGroup: two",
        "odd.WorkerKilled",
        "ray.exceptions.RayTaskError(ValueError): odd",
        "docker: Error response from daemon: no such image",
        "error: cannot find the engine",
        "vllm serve: error: unrecognized arguments: --odd",
        "HCCL demo error: In function initDevice()",
        "what():  [Rank:0] FATAL ERROR :: MODULE:PT_DEVICE GRAPH:: odd",
        "/hcl/src/device.cpp:71(initDevice): The condition [ false ] failed. Odd",
        "./start.sh: line 3: hl-smi: command not found",
        "cat: /models/x: No such file or directory",
        "python: can't open file '/x.py': [Errno 2] No such file or directory",
    ],
)
def test_lines_without_a_level_that_report_an_error(line: str) -> None:
    assert errors("noise", line, "noise") == [(2, line)]


@pytest.mark.parametrize(
    "line",
    [
        "ValueErrors: one",
        "value_error: one",
        "no error here",
        "  ValueError: within a frame",
        "    raise ValueError('Error: x')",
        "KeyboardInterrupt",
        "SystemExit: 3",
        "asyncio.exceptions.CancelledError: odd",
    ],
)
def test_lines_that_report_no_error(line: str) -> None:
    assert errors(line) == []


@pytest.mark.parametrize(
    "mark",
    [
        "ERROR 11-21 04:16:31 [engine.py:474] ",
        "ERROR 11-21 04:16:31 engine.py:474] ",
        "ERROR: 11-21 04:16:31 [engine.py:474]",
        "ERROR 11-21 04:16:31,123456 ",
        "ERROR [engine.py:474] ",
        "ERROR:    ",
        "CRITICAL ",
        "",
    ],
)
def test_a_logged_traceback_is_read_as_one_that_was_printed(mark: str) -> None:
    lines = (f"{mark}{BEGIN}", f'{mark}  File "/x.py", line 1', f"{mark}ValueError: one")
    assert errors(*lines) == [(3, "ValueError: one")]


@pytest.mark.parametrize("level", ["WARN", "WARNING", "INFO", "DEBUG"])
def test_what_was_logged_below_an_error_was_survived(level: str) -> None:
    mark = f"{level} 11-21 04:16:31 [hub.py:1] "
    assert errors(f"{mark}{BEGIN}", f"{mark}ValueError: one", "OSError: two") == [
        (3, "OSError: two")
    ]


def test_the_reason_in_the_lines_below_an_error_is_part_of_it() -> None:
    error = "pydantic.ValidationError: 2 validation errors for VllmConfig"
    assert errors(BEGIN, error, "", "  Value error, odd", "next", BEGIN, "OSError: two") == [
        (2, f"{error}: Value error, odd"),
        (7, "OSError: two"),
    ]
    assert errors("Error: Could not create backend", "", "Caused by:", "    no tensor x", "y") == [
        (1, "Error: Could not create backend: no tensor x")
    ]


def test_three_hundred_characters_of_an_error_are_kept() -> None:
    text = f"ValueError: {'x' * 288}"
    assert errors(BEGIN, f"{text}yz") == errors("a", f"{text}yz") == [(2, text)]
