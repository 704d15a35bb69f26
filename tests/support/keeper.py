"""A simulated Gaudi machine whose services are kept and ended with the test."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.serve import Gaudi
from tests.support.waiting import GENEROUS


class Keeper(Gaudi):
    """A user of services."""

    def call(self, *words: str, do: str = "", **environment: str) -> tuple[int, str, str]:
        done = subprocess.run(
            [sys.executable, "-m", "gaudi_launch", *words],
            env={**self.environment, "TRIVIAL_DO": do, **environment},
            capture_output=True,
            text=True,
            timeout=GENEROUS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode, done.stdout, done.stderr

    def detach(
        self, model: Path, port: int, *words: str, do: str = "", **env: str
    ) -> tuple[int, str, str]:
        more = ("--no-doctor", "--python", str(self.python), "--detach", *words)
        return self.call("serve", "-w", str(model), "-n", "2", "-p", str(port), *more, do=do, **env)

    def services(self, *words: str) -> list[dict[str, Any]]:
        code, out, _ = self.call("ps", "--json", *words)
        assert code == 0
        listed: list[dict[str, Any]] = json.loads(out)["services"]
        return listed

    def folder(self, name: str) -> Path:
        return self.state / "gaudi-launch" / "services" / name
