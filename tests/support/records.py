"""Frozen records, compared as one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import pytest


def known(record: Any) -> dict[str, Any]:
    """Return the fields of a record that are not None."""
    assert is_dataclass(record)
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: value for name, value in values.items() if value is not None}


def near(value: Any) -> Any:
    """Return a value that is equal to a number, or numbers, but for rounding."""
    return pytest.approx(value)
