"""The one exception a user may see, and the exit codes of the program."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gaudi_launch.core.base.messages import Message


class ExitCode(IntEnum):
    """The exit status of the program. The meanings never change."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    MACHINE = 3
    ENGINE = 4
    MODEL = 5
    INTERRUPTED = 130


class LaunchError(Exception):
    """An error that the user can act on, as one sentence.

    It states what was found, what was expected and what to do. ``id`` is a key of the message
    catalogue (``area.word``, stable across releases) and ``values`` fills its placeholders.
    ``exit_code`` is the process's exit status. ``detail`` is raw text (the last lines of a log,
    say) shown below the sentence and never translated.
    """

    def __init__(
        self, id: str, exit_code: ExitCode, *, detail: str | None = None, **values: Any
    ) -> None:
        self.text = Message(id, values)
        self.exit_code = exit_code
        self.detail = detail
        super().__init__(id)

    @property
    def id(self) -> str:
        return self.text.id

    def __str__(self) -> str:
        return self.text.render()

    def to_json(self) -> dict[str, Any]:
        """Return the ``error`` object of ``--json`` output."""
        error: dict[str, Any] = {
            "id": self.id,
            "message": str(self),
            "exit_code": int(self.exit_code),
            "values": dict(self.text.values),
        }
        if self.detail:
            error["detail"] = self.detail
        return error


def file_error(
    id: str, error: OSError, path: object, exit_code: ExitCode = ExitCode.FAILED
) -> LaunchError:
    """Return the error of an unusable file: its path and the reason."""
    why = error.strerror or str(error)
    return LaunchError(id, exit_code, path=str(path), why=why)
