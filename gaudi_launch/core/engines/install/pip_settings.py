"""The settings by which pip finds packages here, for pip in a container.

An image and its logs must not keep the address of a package index, so that the settings are one
file that is mounted while the image is built. Files and their order, variables and keys:
pip documentation, "Configuration".
"""

from __future__ import annotations

import configparser
import io
import logging
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaudi_launch.core.base.mirrors import NONE, TORCH_VARIABLE, Mirrors, exported_proxies

_log = logging.getLogger(__name__)

# where pip looks and how it gets there; keys that name other files of this machine stay here
_KEYS = (
    "index-url",
    "extra-index-url",
    "no-index",
    "find-links",
    "trusted-host",
    "cert",
    "client-cert",
    "proxy",
    "timeout",
    "default-timeout",
    "retries",
)
_SECTIONS = ("global", "install", "download")
_LISTS = ("index-url", "extra-index-url", "find-links", "cert", "client-cert")
_SYSTEM_FILES = ("/etc/pip.conf",)
_FILE = "file://"
_SIMPLE = "simple"
# the host of an address, without a user's name and password
_HOST = re.compile(r"\w+://(?:[^/@\s]*@)?([^/:\s]+)")


@dataclass(frozen=True)
class PipSettings:
    """pip's settings for a container.

    ``config`` is the text of a pip.conf, ``mounts`` are the folders and files of this machine that
    it names, by their path in the container, ``variables`` are those of the user's proxy and of a
    mirror of PyTorch.
    """

    config: str
    mounts: Mapping[str, str]
    variables: Mapping[str, str]


def read_settings(
    environment: Mapping[str, str], target: str, mirrors: Mirrors = NONE
) -> PipSettings:
    """Return the settings of pip as this user runs it.

    Paths of this machine become paths below ``target``. ``mirrors`` replace the
    configured index, and their folder of wheels replaces all settings.
    """
    if mirrors.wheels:
        config = f"[global]\nno-index = true\nfind-links = {target}/wheels\n"
        return PipSettings(config, {f"{target}/wheels": mirrors.wheels}, {})
    found: dict[str, dict[str, str]] = {}
    for file in _files(environment):
        _read(file, found)
    for key in _KEYS:
        value = environment.get(f"PIP_{key.replace('-', '_').upper()}")
        if value:
            found.setdefault("global", {})[key] = value
            for section in _SECTIONS[1:]:
                found.get(section, {}).pop(key, None)
    if mirrors.pip and not mirrors.pip_by_itself:
        for settings in found.values():
            settings.pop("index-url", None)
        found.setdefault("global", {})["index-url"] = mirrors.pip
    mounts: dict[str, str] = {}
    for settings in found.values():
        for key in _LISTS:
            if key in settings:
                settings[key] = _inside(settings[key], target, mounts)
    variables = {name: environment[name] for name in exported_proxies(environment)}
    if mirrors.torch:
        variables[TORCH_VARIABLE] = mirrors.torch
    return PipSettings(_written(found), mounts, variables)


def without_addresses(line: str, config: str) -> str:
    """Return a line of pip's output without addresses and configured hosts."""
    line = re.sub(r"\w+://[^\s'\"]+", "[address]", line)
    for host in set(_HOST.findall(config)):
        line = line.replace(host, "[host]")
    return line


def _files(environment: Mapping[str, str]) -> list[Path]:
    """Return the files that pip reads, the weakest first; missing ones too."""
    chosen = environment.get("PIP_CONFIG_FILE")
    if chosen == os.devnull:
        return []
    home = environment.get("HOME") or "/"
    config = environment.get("XDG_CONFIG_HOME") or f"{home}/.config"
    folders = reversed((environment.get("XDG_CONFIG_DIRS") or "/etc/xdg").split(":"))
    files = [f"{folder}/pip/pip.conf" for folder in folders]
    files += [*_SYSTEM_FILES, f"{home}/.pip/pip.conf", f"{config}/pip/pip.conf"]
    files.append(f"{sys.prefix}/pip.conf")
    if chosen:
        files.append(chosen)
    return [Path(file) for file in files]


def _read(file: Path, found: dict[str, dict[str, str]]) -> None:
    parser = configparser.RawConfigParser()
    try:
        parser.read_string(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        _log.debug("a configuration of pip is not read: %s", error)
        return
    for section in _SECTIONS:
        if parser.has_section(section):
            known = {name.replace("_", "-"): value for name, value in parser.items(section)}
            kept = {name: value for name, value in known.items() if name in _KEYS}
            found.setdefault(section, {}).update(kept)


def _inside(value: str, target: str, mounts: dict[str, str]) -> str:
    """Return a list of addresses with local paths as the container sees them."""
    words = []
    for word in value.split():
        is_address = "://" in word and not word.startswith(_FILE)
        path = Path(word.removeprefix(_FILE)).expanduser().absolute()
        if is_address:
            words.append(word)
        elif path.exists():
            place = _mounted(path, target, mounts)
            words.append(f"{_FILE}{place}" if word.startswith(_FILE) else place)
    return "\n".join(words)


def _mounted(path: Path, target: str, mounts: dict[str, str]) -> str:
    """Return the path in the container of a file or folder, and mount it.

    The pages of an index link to files next to its folder "simple" (PEP 503 names it so).
    """
    folder = path.parent if path.name == _SIMPLE else path
    place = f"{target}/{len(mounts)}"
    mounts[place] = str(folder)
    if path.name == _SIMPLE:
        return f"{place}/{_SIMPLE}"
    return place


def _written(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of a pip.conf; an empty value is left out."""
    parser = configparser.RawConfigParser()
    for section, settings in found.items():
        kept = {name: value for name, value in settings.items() if value}
        if kept:
            parser[section] = kept
    text = io.StringIO()
    parser.write(text)
    return text.getvalue()
