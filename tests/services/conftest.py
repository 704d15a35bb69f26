from __future__ import annotations

from tests.support.processes import free_port, pids, trivial_python

__all__ = ["free_port", "pids", "trivial_python"]
