"""Booleans of variables, as the engines read them."""

from __future__ import annotations


def is_true(text: str) -> bool:
    """Return the parser of 1.21 and deepseek_r1: only ``true``, in any case.

    ``1`` is false.
    """
    return text.lower() == "true"


def boolean(text: str) -> bool:
    """Return the parser of 1.22 and vllm-gaudi (extension ``config.py``)."""
    return text.lower() in ("true", "t", "1", "yes", "y", "on")
