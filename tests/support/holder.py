"""A launch in another process: reserves modules, reports it, and waits.

It ends when its input ends.
"""

from __future__ import annotations

import sys
from pathlib import Path

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.services.state.reservation import reserve

try:
    with reserve(tuple(int(word) for word in sys.argv[2].split(",")), Path(sys.argv[1])):
        print("held", flush=True)
        sys.stdin.read()
except LaunchError as error:
    print(error.id, flush=True)
    sys.exit(int(error.exit_code))
