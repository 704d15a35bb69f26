"""Variants of a simulated machine that every reader of hosts is tested with."""

from __future__ import annotations

VARIANTS = (
    "hls2",
    "gaudi2e-8",
    "gaudi2e-4",
    "gaudi3-oam",
    "gaudi3-pcie",
    "hls2+busy=3,5,7",
    "gaudi3-pcie+failed=2+bad-tuning",
    "gaudi2e-8+no-sysfs",
    "hls2+no-hl-smi+busy=1",
    "hls2+no-driver",
    "hls2+no-smt+container",
    "hls2+amd+hot=1+pending-rows=2+capped=3+old-fit",
)
