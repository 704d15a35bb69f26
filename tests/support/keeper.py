"""A simulated Gaudi machine whose services are kept and ended with the test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.cli import called
from tests.support.serve import Gaudi
from tests.support.waiting import GENEROUS


class Keeper(Gaudi):
    """A user of services."""

    def call(self, *words: str, **variables: str) -> tuple[int, str, str]:
        code, out, err = called({**self.environment, "TRIVIAL_DO": "", **variables}, *words)
        assert "Traceback" not in err, err
        return code, out, err

    def detach(
        self, model: Path, port: int, *words: str, do: str = "", **variables: str
    ) -> tuple[int, str, str]:
        """Start a service by a process that it outlives."""
        asked = ("-w", str(model), "-n", "2", "-p", str(port), "--detach", *words)
        process = self.start(*asked, do=do, **variables)
        out, err = process.communicate(timeout=GENEROUS)
        return process.returncode, out, err

    def services(self, *words: str) -> list[dict[str, Any]]:
        code, out, _ = self.call("ps", "--json", *words)
        assert code == 0
        listed: list[dict[str, Any]] = json.loads(out)["services"]
        return listed

    def folder(self, name: str) -> Path:
        return self.state / "gaudi-launch" / "services" / name
