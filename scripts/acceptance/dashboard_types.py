"""Check the dashboard with the TypeScript types that Grafana publishes.

`dashboard_types.py [--version 13.2.3]`

The npm package @grafana/schema has the types of a dashboard; the compiler refuses a value of
another type. A wrong value is tried too, which the compiler has to refuse. Needs npm. The exit
status is 0 when the dashboard was accepted and the wrong value was not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from gaudi_launch.core.render.monitoring import dashboard

_SECONDS = 300
_CONFIG = {
    "compilerOptions": {
        "strict": True,
        "noEmit": True,
        "module": "nodenext",
        "moduleResolution": "nodenext",
        "skipLibCheck": True,
        "types": [],
    },
    "files": ["dashboard.ts"],
}


def install(folder: Path, version: str) -> None:
    """Install Grafana's types and the compiler, without their scripts."""
    (folder / "package.json").write_text('{"private": true}')
    (folder / "tsconfig.json").write_text(json.dumps(_CONFIG))
    command = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"]
    command += [f"@grafana/schema@{version}", "typescript@5"]
    subprocess.run(command, cwd=folder, check=True, timeout=_SECONDS)


def refused(folder: Path, document: dict[str, Any]) -> str:
    """Return the compiler's errors about a dashboard; "" where it is accepted."""
    text = 'import type {Dashboard} from "@grafana/schema";\n'
    text += f"const found: Dashboard = {json.dumps(document)};\nexport default found;\n"
    (folder / "dashboard.ts").write_text(text)
    program = folder / "node_modules" / ".bin" / "tsc"
    done = subprocess.run(
        [program, "-p", "."], cwd=folder, capture_output=True, text=True, timeout=_SECONDS
    )
    return done.stdout if done.returncode else ""


def main() -> int:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("--version", default="13.2.3")
    given = reader.parse_args()
    if shutil.which("npm") is None:
        print("npm is not installed", file=sys.stderr)
        return 3
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        install(folder, given.version)
        errors = refused(folder, dashboard())
        wrong = refused(folder, {**dashboard(), "panels": [{"type": "timeseries", "title": 7}]})
    print(errors or "the dashboard has the types of Grafana's schema")
    if not wrong:
        print("a wrong value was not noticed")
    return 0 if wrong and not errors else 1


if __name__ == "__main__":
    raise SystemExit(main())
