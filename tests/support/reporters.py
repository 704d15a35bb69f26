"""Reporters that keep what a use case reports."""

from __future__ import annotations

from gaudi_launch.core.launch.report import Silent


class Lines(Silent):
    """Keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, line: str) -> None:
        self.lines.append(line)
