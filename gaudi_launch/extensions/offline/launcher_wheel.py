"""The wheel of this gaudi-launch, by its checkout or its installed files."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path

_NAME = "gaudi-launch"
# written by the installer, not part of a wheel
_INSTALLERS = ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")


def checkout() -> Path | None:
    """Return the folder of the sources that this program runs from, None for a wheel."""
    folder = Path(__file__).parents[3]
    if not (folder / "pyproject.toml").is_file():
        return None
    return folder


def from_installed(target: Path) -> Path:
    """Write the wheel of the installed files to a folder; return its path.

    docs: "Binary distribution format" (packaging.python.org). Raises OSError.
    """
    found = metadata.distribution(_NAME)
    contents: dict[str, bytes] = {}
    for file in found.files or ():
        name = file.as_posix()
        own = name.startswith("gaudi_launch") and file.name not in _INSTALLERS
        if own and "__pycache__" not in file.parts:
            contents[name] = Path(str(file.locate())).read_bytes()
    record = f"gaudi_launch-{found.version}.dist-info/RECORD"
    lines = [f"{name},{_hash(content)},{len(content)}" for name, content in contents.items()]
    contents[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    wheel = target / f"gaudi_launch-{found.version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return wheel


def _hash(content: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"
