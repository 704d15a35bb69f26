"""A stack as systemd units: engines, gateway, and a target for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.systemd import UnitOptions, command, order_lines, render, unit_text
from gaudi_launch.extensions.stack.gateway.gateway_image import RenderedGateway

GATEWAY_FOLDER = "gateway"
_RESTART_SECONDS = 1
# by `UnitOptions.user`
_NOTES = {True: "render.stack_units_user", False: "render.stack_units"}
_OF_ONE = ("render.unit_system", "render.unit_user")
_STOP_SECONDS = 60


@dataclass(frozen=True)
class UnitEngine:
    """One engine: its unit's name, its plan, and the units that it waits for.

    ``given`` are the user's exported variables.
    """

    name: str
    plan: Plan
    given: Mapping[str, str]
    after: tuple[str, ...]


def run_folder(name: str) -> str:
    """Return the folder in which the gateway writes: systemd makes and removes it.

    %t is the system's or the user's runtime folder (systemd.unit(5)).
    """
    return f"%t/{name}-gateway"


def render_stack(
    name: str,
    head: Sequence[str],
    engines: Sequence[UnitEngine],
    gateway: RenderedGateway,
    options: UnitOptions,
) -> Rendered:
    """Return the target, the gateway's unit and files, and the engines' units.

    Raises LaunchError (USAGE) as `render` does.
    """
    target = f"{name}.target"
    inside = replace(options, target=target)
    units = [f"{name}-gateway.service", *(f"{engine.name}.service" for engine in engines)]
    files = {
        target: _target(head, units, options),
        units[0]: _gateway_unit(head, gateway, inside),
    }
    notes: list[Message] = [message(_NOTES[options.user], name=name)]
    for engine in engines:
        after = tuple(f"{other}.service" for other in engine.after)
        made = render(engine.plan, engine.name, engine.given, replace(inside, after=after))
        files |= made.files
        # the installation is described once, for the target
        notes += [note for note in made.notes if note.id not in _OF_ONE]
    files |= {f"{GATEWAY_FOLDER}/{each}": content for each, content in gateway.files.items()}
    notes.append(message("render.stack_program", program=gateway.argv[0]))
    return Rendered(files, notes=tuple(dict.fromkeys(notes)))


def _target(head: Sequence[str], units: Sequence[str], options: UnitOptions) -> str:
    install = (f"WantedBy={options.wanted_by}",)
    return unit_text(head, {"Unit": (f"Wants={' '.join(units)}",), "Install": install})


def _gateway_unit(head: Sequence[str], gateway: RenderedGateway, options: UnitOptions) -> str:
    # the last argument is a folder below systemd's %t, which quoting would double
    *words, folder = gateway.argv
    owner = (f"User={options.owner}",) if options.owner else ()
    service = (
        "Type=exec",
        *owner,
        f"RuntimeDirectory={PurePosixPath(folder).name}",
        "RuntimeDirectoryMode=0700",
        f"ExecStart={command(words)} {folder}",
        "ExecReload=/bin/kill -HUP $MAINPID",
        f"TimeoutStopSec={_STOP_SECONDS}",
        "KillMode=mixed",
        "Restart=on-failure",
        f"RestartSec={_RESTART_SECONDS}",
        "LimitNOFILE=65535",
    )
    sections = {
        "Unit": order_lines(replace(options, launcher=None)),
        "Service": service,
        "Install": (f"WantedBy={options.wanted_by}",),
    }
    return unit_text(head, sections)
