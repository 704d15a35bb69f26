"""Record the lines of the package that each test function executes.

Those of child processes count as well. `scripts/proof.py record` puts it into its environment:
every interpreter there imports it, and pytest uses it as a plugin. A record is the file
`FOLDER/TEST/PID` with a line of text for each line of code, and is complete also where a process
is killed. sys.monitoring, which Python has from 3.12 on, reports a line once and then costs
nothing.

Code of modules and classes is left out: the first test that imports a module would own it.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import sys
from pathlib import Path
from types import CodeType
from typing import Any

FOLDER = "LINE_RECORDER_FOLDER"
# the test function that a process works for; its children inherit it
TEST = "LINE_RECORDER_TEST"
_PACKAGE = "/gaudi_launch/"


def _write(folder: str, line: str) -> None:
    """Append a line.

    The file is opened each time: a process may close every file it has. What a test forbids, as a
    file of this size, is not recorded.
    """
    test = os.environ.get(TEST, "none").replace("/", "+")
    path = Path(folder, test, str(os.getpid()))
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)


def start() -> None:
    """Record every line that this process executes for the first time from now on."""
    if sys.version_info >= (3, 12):
        monitoring = sys.monitoring
        # a test may empty the environment
        folder = os.environ[FOLDER]

        def line(code: CodeType, number: int) -> Any:
            place = code.co_filename.rfind(_PACKAGE)
            if place >= 0 and code.co_flags & inspect.CO_OPTIMIZED:
                _write(folder, f"{code.co_filename[place + 1 :]}:{number}\n")
            return monitoring.DISABLE

        if monitoring.get_tool(monitoring.COVERAGE_ID):
            return  # a linked folder of packages is read twice
        monitoring.use_tool_id(monitoring.COVERAGE_ID, "lines")
        monitoring.register_callback(monitoring.COVERAGE_ID, monitoring.events.LINE, line)
        monitoring.set_events(monitoring.COVERAGE_ID, monitoring.events.LINE)


def pytest_runtest_logstart(nodeid: str) -> None:
    """Start the record of a test function with its first case."""
    test = nodeid.partition("[")[0]
    if test != os.environ.get(TEST) and sys.version_info >= (3, 12):
        os.environ[TEST] = test
        sys.monitoring.restart_events()
