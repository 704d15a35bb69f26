"""The wheel of the running program."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import pytest

from gaudi_launch.extensions.offline import pack
from tests.support.places import TOP


def test_a_checkout_is_known_by_its_project_file() -> None:
    assert pack.checkout() == TOP


def test_a_wheel_is_made_of_what_an_installer_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        "gaudi_launch-9.9.dist-info/REQUESTED": "",
    }
    for name, content in files.items():
        (site / name).write_text(content)
    record = "".join(f"{name},,\n" for name in (*files, "../../bin/gaudi-launch"))
    (info / "RECORD").write_text(record + "gaudi_launch-9.9.dist-info/RECORD,,\n")
    monkeypatch.syspath_prepend(site)
    wheel = pack.write_installed_wheel(tmp_path)
    assert wheel == tmp_path / "gaudi_launch-9.9-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        rows = list(csv.reader(io.StringIO(archive.read(names[-1]).decode())))
        assert archive.read(names[0]) == b"x = 1\n"
        assert {each.compress_type for each in archive.infolist()} == {zipfile.ZIP_DEFLATED}
    assert names == [
        "gaudi_launch/__init__.py",
        "gaudi_launch-9.9.dist-info/METADATA",
        "gaudi_launch-9.9.dist-info/RECORD",
    ]
    # sha256 of "x = 1\n", by coreutils and base64
    digest = "sha256=nia_NpkRxFwkPGhBR7I_yeHc_PJX0pmhxjIBam_NM_Q"
    assert rows[0] == ["gaudi_launch/__init__.py", digest, "6"]
    assert rows[-1] == [names[-1], "", ""]
    assert [row[0] for row in rows] == names
