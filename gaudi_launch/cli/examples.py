"""The command lines at the end of each help.

examples.json has them: the path of a command without the program's name, its command lines, and
what each does in English. tests/cli/test_examples.py runs every one.
"""

from __future__ import annotations

from collections.abc import Mapping

from gaudi_launch.core.base.reader import beside


def examples() -> Mapping[str, Mapping[str, str]]:
    """Return the meaning of each command line by the path of its command."""
    found: Mapping[str, Mapping[str, str]] = beside(__file__)
    return found
