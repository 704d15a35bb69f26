"""Frozen records, compared as one."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any


def known(record: Any) -> dict[str, Any]:
    """Return the fields of a record that are not None."""
    assert is_dataclass(record)
    values = {field.name: getattr(record, field.name) for field in fields(record)}
    return {name: value for name, value in values.items() if value is not None}
