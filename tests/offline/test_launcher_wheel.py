"""The wheel of the running program."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
import zipfile
from pathlib import Path

from gaudi_launch.offline import launcher_wheel


def test_a_checkout_is_known_by_its_project_file() -> None:
    assert launcher_wheel.checkout() == Path(__file__).parents[2]


def test_a_wheel_is_made_of_what_an_installer_wrote(tmp_path: Path) -> None:
    site = tmp_path / "site"
    info = site / "gaudi_launch-9.9.dist-info"
    (site / "gaudi_launch/__pycache__").mkdir(parents=True)
    info.mkdir()
    files = {
        "gaudi_launch/__init__.py": "x = 1\n",
        "gaudi_launch/__pycache__/a.pyc": "",
        "gaudi_launch-9.9.dist-info/METADATA": "Name: gaudi-launch\nVersion: 9.9\n",
        "gaudi_launch-9.9.dist-info/direct_url.json": '{"url": "https://secret@host"}',
        "gaudi_launch-9.9.dist-info/INSTALLER": "pip",
    }
    for name, content in files.items():
        (site / name).write_text(content)
    record = "".join(f"{name},,\n" for name in (*files, "../../bin/gaudi-launch"))
    (info / "RECORD").write_text(record + "gaudi_launch-9.9.dist-info/RECORD,,\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from gaudi_launch.offline import launcher_wheel\n"
        f"sys.path.insert(0, {str(site)!r})\n"
        f"print(launcher_wheel.from_installed(Path({str(tmp_path)!r})).name)"
    )
    top = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=top, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "gaudi_launch-9.9-py3-none-any.whl\n"), done.stderr
    with zipfile.ZipFile(tmp_path / done.stdout.strip()) as archive:
        names = archive.namelist()
        rows = list(csv.reader(io.StringIO(archive.read(names[-1]).decode())))
    assert names == [
        "gaudi_launch/__init__.py",
        "gaudi_launch-9.9.dist-info/METADATA",
        "gaudi_launch-9.9.dist-info/RECORD",
    ]
    # sha256 of "x = 1\n", by coreutils
    assert rows[0][2] == "6"
    assert [row[0] for row in rows] == names
