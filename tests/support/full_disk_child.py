"""The hub's child on a full disk: a partial file is /dev/full.

It is that of model.safetensors.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gaudi_launch.core.models.hub import child

_open = os.open


def _open_full(path: Any, flags: int, *args: Any, **options: Any) -> int:
    if Path(os.fsdecode(path)).name == "model.safetensors.part":
        return _open("/dev/full", os.O_WRONLY)
    return _open(path, flags, *args, **options)


os.open = _open_full
child.main()
