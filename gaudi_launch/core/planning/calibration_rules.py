"""Calibration of an engine for fp8: the records of `Engine.calibration`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Rules:
    """Settings for measuring and quantising one model.

    ``env`` are variables of every step; ``measure_words`` and ``quantise_words`` are arguments of
    the steps with the model, ``measure_more`` and ``quant_more`` are entries of the two files.
    """

    measure_names: tuple[str, ...]
    types: tuple[str, ...]
    names: tuple[str, ...]
    method: str = "maxabs_hw"
    scales: str = "scalar"
    env: Mapping[str, str] = field(default_factory=dict)
    measure_words: tuple[str, ...] = ()
    quantise_words: tuple[str, ...] = ()
    measure_more: Mapping[str, Any] = field(default_factory=dict)
    quant_more: Mapping[str, Any] = field(default_factory=lambda: {"fp8_config": "E4M3"})

    def measure_config(self, stem: str) -> dict[str, Any]:
        """Return the QUANT_CONFIG of measuring; ``stem`` is where each rank writes."""
        return {
            "method": "HOOKS",
            "mode": "MEASURE",
            "observer": "maxabs",
            "allowlist": {"types": [], "names": []},
            "blocklist": {"types": [], "names": list(self.measure_names)},
            "quantize_weight": False,
            "dump_stats_path": stem,
            **self.measure_more,
        }

    def quant_config(self, stem: str) -> dict[str, Any]:
        """Return the QUANT_CONFIG of serving."""
        return {
            "mode": "QUANTIZE",
            "observer": "maxabs",
            "scale_method": self.method,
            "scale_format": self.scales,
            "allowlist": {"types": [], "names": []},
            "blocklist": {"types": list(self.types), "names": list(self.names)},
            "dump_stats_path": stem,
            **self.quant_more,
        }


@dataclass(frozen=True)
class Calibration:
    """An engine's calibration scripts and what they write.

    ``release`` is recorded with a calibration; ``family`` names the engines that can read each
    other's measurements ("": the forks whose modules have the same names). ``home``, ``branch`` and
    ``folder`` are where the scripts are published; ``installed`` are facts of an interpreter, of
    which the first known one leads to ``inside``. ``steps`` are the spellings of each script's
    file. ``expands``: what each card measured of its local experts is merged for all of them.
    ``one_step``: one script does everything, with a fixed data set and batch. ``published``: the
    published measurements are of this engine's modules.
    """

    release: str
    family: str
    rules: Callable[[str], Rules]
    home: str
    branch: str
    folder: str
    steps: Mapping[int, tuple[str, ...]]
    installed: tuple[str, ...]
    inside: str = "calibration"
    expands: bool = False
    one_step: bool = False
    published: bool = True
    serve_with: str = "-d fp8"

    def rules_for(self, name: str) -> Rules:
        """Return the rules of a model by the last part of its path.

        Names are compared in lower case.
        """
        return self.rules(name.lower())

    def scripts_of(self, facts: Mapping[str, str]) -> Path:
        """Return the folder of the scripts in an interpreter with these facts."""
        source = next((facts[name] for name in self.installed if facts.get(name)), "")
        return Path(source) / self.inside
