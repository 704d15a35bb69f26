"""The file of a service's secret options, which the engine reads by --config.

It is written with mode 0600.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, file_error
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.secret_args import SECRET_FILE


@dataclass(frozen=True)
class SecretFile:
    """The secret options of the service of this folder.

    ``text`` is "" for one that has none.
    """

    folder: Path
    text: str

    @property
    def path(self) -> Path:
        """Return where the engine finds them."""
        return self.folder / SECRET_FILE

    def named_in(self, plan: Plan) -> Plan:
        """Return the plan with this path in the place of the file's name."""
        if not self.text:
            return plan
        moved = {SECRET_FILE: str(self.path)}
        argv = tuple(moved.get(word, word) for word in plan.command.argv)
        user = tuple(moved.get(word, word) for word in plan.command.user)
        settings = tuple(
            replace(setting, value=moved.get(setting.value or "", setting.value))
            for setting in plan.settings
        )
        return replace(plan, command=replace(plan.command, argv=argv, user=user), settings=settings)

    def write(self) -> None:
        """Write the file, or remove one of an earlier launch.

        Raises LaunchError (MACHINE) where it cannot be.
        """
        try:
            self.path.unlink(missing_ok=True)
            if not self.text:
                return
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(self.text)
        except OSError as error:
            raise file_error(
                "services.secret_unwritten", error, self.path, ExitCode.MACHINE
            ) from None
