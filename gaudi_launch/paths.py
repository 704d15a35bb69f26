"""Where things are kept: XDG folders, and the root under which a machine is read."""

from __future__ import annotations

import os
from pathlib import Path

_APP = "gaudi-launch"


def _xdg(variable: str, fallback: str) -> Path:
    base = os.environ.get(variable, "")
    # the XDG specification tells programs to ignore relative paths
    return (Path(base) if Path(base).is_absolute() else Path.home() / fallback) / _APP


def state_dir() -> Path:
    """Services, logs, journals. Not created here."""
    return _xdg("XDG_STATE_HOME", ".local/state")


def cache_dir() -> Path:
    """What can be made again: recipes, simulations. Not created here."""
    return _xdg("XDG_CACHE_HOME", ".cache")


def data_dir() -> Path:
    """Engine environments and models that we made. Not created here."""
    return _xdg("XDG_DATA_HOME", ".local/share")


def config_dir() -> Path:
    """The user's own settings and profiles. Not created here."""
    return _xdg("XDG_CONFIG_HOME", ".config")


def machine_root() -> Path:
    """The folder that stands for "/" when a machine is read (GAUDI_LAUNCH_ROOT, default "/")."""
    return Path(os.environ.get("GAUDI_LAUNCH_ROOT") or "/")


def profiles_dir() -> Path:
    """The shipped profiles: in a checkout the top-level folder, in a wheel a folder of the package."""
    package = Path(__file__).parent
    installed = package / "_profiles"
    return installed if installed.is_dir() else package.parent / "profiles"
