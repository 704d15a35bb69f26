"""A platform plug-in of vLLM for tests: its CPU platform knows no Ray resource ("does not
support ray"), this one asks for HPU, so that the real engine can be spread over hosts without
a card."""

from __future__ import annotations


def register() -> str:
    """The entry point vllm.platform_plugins."""
    return "cpu_on_ray.platform.CpuOnRay"
