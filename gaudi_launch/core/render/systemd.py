"""A plan as a systemd service, and a unit that tunes the machine before it.

The service is for the system or for one user. Several plans have a target, and their gateway.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.planning.exported import SECRETS
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.render.gateway import GATEWAY_FOLDER, GatewayFiles
from gaudi_launch.core.render.plan_container import (
    no_container,
    refuse_secrets,
    required,
    secrets_of,
    start_seconds,
)
from gaudi_launch.core.render.rendered import Rendered
from gaudi_launch.core.render.script import folders_of
from gaudi_launch.core.render.text import check_words, comments, heading, on_one_line

# a user's name or number: dots and @ are in those of directories, which systemd accepts with a
# warning (docs: systemd.io, "User/Group Name Syntax")
_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@-]*")
TUNING = "gaudi-launch-tuning.service"
# by `UnitOptions.user`: how to install the unit, and the tuning of the machine
_NOTES = {
    True: ("render.unit_user", "render.tuning_user"),
    False: ("render.unit_system", "render.tuning"),
}
_SEVERAL_NOTES = {True: "render.stack_units_user", False: "render.stack_units"}
_OF_ONE = ("render.unit_system", "render.unit_user")
# the ordered end of the engine, then its remaining processes are killed
_STOP_SECONDS = 60
_RESTART_SECONDS = 30
_GATEWAY_RESTART_SECONDS = 1
# active means "answers": the unit waits here, and gives up when the engine has ended (systemd would
# continue to wait)
_WAIT = (
    "import os, sys, time, urllib.request as r\n"
    "ask = r.build_opener(r.ProxyHandler({})).open\n"
    "while True:\n"
    "    try:\n"
    "        sys.exit(ask(sys.argv[1], timeout=5).close())\n"
    "    except Exception:\n"
    "        time.sleep(2)\n"
    "    if not os.path.exists('/proc/' + os.environ.get('MAINPID', 'self')):\n"
    "        sys.exit('the engine has ended')\n"
)


@dataclass(frozen=True)
class UnitOptions:
    """Options of a unit: its user, its target, what is started before it.

    ``user`` makes a unit for ``systemctl --user``, ``run_as`` is the system unit's user,
    ``launcher`` is this program: with it a second unit tunes the machine first. ``target`` is the
    unit that starts and stops this one with others ("": the system's), ``after`` are units that
    must be active before.
    """

    user: bool = False
    run_as: str | None = None
    launcher: str | None = None
    target: str = ""
    after: tuple[str, ...] = ()

    @property
    def tuned(self) -> bool:
        """Return True if a unit tunes the machine first: one of root's can."""
        return self.launcher is not None and not self.user

    @property
    def wanted_by(self) -> str:
        """Return the unit with which this one is started."""
        if self.target:
            return self.target
        if self.user:
            return "default.target"
        return "multi-user.target"

    @property
    def owner(self) -> str:
        """Return the user of a system unit; "" for root and for a user's own unit."""
        if self.user:
            return ""
        return self.run_as or ""


def render(
    plan: Plan, name: str, given: Mapping[str, str], options: UnitOptions | None = None
) -> Rendered:
    """Return NAME.service.

    ``given`` are the user's exported variables.

    Raises LaunchError (USAGE): arguments that systemd cannot represent, an interpreter that is not
    a path, a ``run_as`` that is not a user.
    """
    options = options or UnitOptions()
    _check(plan, options)
    secrets = secrets_of(plan, given)
    # the user creates it, readable by its owner only
    place = f"{'%h/.config' if options.user else '/etc'}/gaudi-launch/{name}.env"
    limits = (f"StartLimitIntervalSec={4 * start_seconds(plan)}", "StartLimitBurst=3")
    lines = ["Type=exec"]
    if options.owner:
        lines.append(f"User={options.owner}")
    if plan.command.working_dir:
        lines.append(f"WorkingDirectory={description(plan.command.working_dir)}")
    env = {
        variable: value for variable, value in plan.command.env.items() if variable not in SECRETS
    }
    lines += environment(env)
    if secrets:
        optional = "" if required(secrets) else "-"
        lines.append(f"EnvironmentFile={optional}{place}")
    folders = folders_of(env)
    if folders:
        lines.append(f"ExecStartPre={command(('/bin/mkdir', '-p', '--', *folders))}")
    sections = {
        "Unit": (*order_lines(options), *limits),
        "Service": (*lines, *_service_lines(plan)),
        "Install": (f"WantedBy={options.wanted_by}",),
    }
    files = {f"{name}.service": unit_text(heading(plan), sections)}
    about, about_tuning = _NOTES[options.user]
    notes = [message(about, name=name)]
    if options.launcher is not None:
        notes.append(message(about_tuning))
        if not options.user:
            files[TUNING] = tuning(options.launcher)
    if secrets:
        notes.append(message("render.unit_secrets", names=", ".join(secrets), path=place))
    return Rendered(files, notes=tuple(notes))


def unit_text(head: Sequence[str], sections: Mapping[str, Sequence[str]]) -> str:
    """Return a unit: comments and the description from `head`, then lines by section."""
    lines = list(comments(head))
    for name, content in sections.items():
        about = (f"Description={description(head[0])}",) if name == "Unit" else ()
        lines += [f"[{name}]", *about, *content, ""]
    return "\n".join(lines[:-1]) + "\n"


def _check(plan: Plan, options: UnitOptions) -> None:
    """Refuse what a unit cannot represent. Raises LaunchError (USAGE)."""
    if options.run_as is not None and not _USER.fullmatch(options.run_as):
        raise LaunchError("render.run_as", ExitCode.USAGE, found=options.run_as)
    no_container(plan, "systemd")
    check_words(plan, for_systemd=True)
    refuse_secrets(plan.args)
    if not PurePosixPath(plan.command.argv[0]).is_absolute():
        raise LaunchError("render.no_path", ExitCode.USAGE, found=plan.command.argv[0])


def order_lines(options: UnitOptions) -> tuple[str, ...]:
    """Return what a unit is started after, and what it is stopped with.

    A user's manager does not know the network.
    """
    after: Sequence[str] = options.after
    lines = []
    if not options.user:
        lines.append("Wants=network-online.target")
        after = (*after, "network-online.target")
    if options.tuned:
        lines.append(f"Wants={TUNING}")
        after = (TUNING, *after)
    if after:
        lines.append(f"After={' '.join(after)}")
    if options.target:
        lines.append(f"PartOf={options.target}")
    return tuple(lines)


def _service_lines(plan: Plan) -> Iterator[str]:
    """Yield the engine's start and end, its limits, its CPUs and its memory's node."""
    argv = plan.command.argv
    yield f"ExecStart={command(argv)}"
    yield f"ExecStartPost={command((argv[0], '-I', '-c', _WAIT, f'{plan.url}/health'))}"
    yield f"TimeoutStartSec={start_seconds(plan)}"
    yield f"TimeoutStopSec={_STOP_SECONDS}"
    yield "KillMode=mixed"
    yield "Restart=on-failure"
    yield f"RestartSec={_RESTART_SECONDS}"
    yield "LimitMEMLOCK=infinity"
    yield "LimitNOFILE=65535"
    if plan.command.cpus:
        yield f"CPUAffinity={format_cpus(plan.command.cpus)}"
    if plan.command.memory_node is not None:
        yield "NUMAPolicy=preferred"
        yield f"NUMAMask={plan.command.memory_node}"


def tuning(launcher: str) -> str:
    """Return the unit that tunes the machine at boot, with reversible changes only."""
    lines = [
        "[Unit]",
        f"Description={description(message('render.tuning_title').render())}",
        "After=systemd-modules-load.service systemd-sysctl.service",
        "",
        "[Service]",
        "Type=oneshot",
        "RemainAfterExit=yes",
        # 3: this machine cannot be set up as it is; the engine's launch reports what is missing
        "SuccessExitStatus=3",
        f"ExecStart={command((launcher, 'doctor', '--fix', '--yes'))}",
        "",
        "[Install]",
        "WantedBy=multi-user.target",
    ]
    return "\n".join(lines) + "\n"


# characters that need no quotes
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=:,./@^")
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "%": "%%"}


def quoted(word: str) -> str:
    """Return one value for Environment= and the like.

    It has C escapes and doubled specifiers (%).
    """
    if word and all(mark in _SAFE for mark in word):
        return word
    return '"' + "".join(_ESCAPES.get(mark) or _other(mark) for mark in word) + '"'


def _other(mark: str) -> str:
    if ord(mark) < 32 or ord(mark) == 127:
        return f"\\x{ord(mark):02x}"
    return mark


def command(words: Sequence[str]) -> str:
    """Return arguments for ExecStart=: as `quoted`, and variables ($) doubled."""
    return " ".join(quoted(word).replace("$", "$$") for word in words)


def environment(env: Mapping[str, str]) -> list[str]:
    """Return Environment= lines, sorted by name."""
    return [f"Environment={quoted(f'{name}={value}')}" for name, value in sorted(env.items())]


def description(words: str) -> str:
    """Return a line that is text only: no specifiers, one line."""
    return on_one_line(words).replace("%", "%%").rstrip("\\")


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


def render_several(
    name: str,
    head: Sequence[str],
    engines: Sequence[UnitEngine],
    gateway: GatewayFiles,
    options: UnitOptions,
) -> Rendered:
    """Return the target, the gateway's unit and files, and the engines' units.

    Raises LaunchError (USAGE) as `render` does.
    """
    target = f"{name}.target"
    inside = replace(options, target=target)
    units = [f"{name}-gateway.service", *(f"{engine.name}.service" for engine in engines)]
    install = (f"WantedBy={options.wanted_by}",)
    # the last argument is a folder below systemd's %t, which quoting would double
    *words, folder = gateway.argv
    owner = (f"User={inside.owner}",) if inside.owner else ()
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
        f"RestartSec={_GATEWAY_RESTART_SECONDS}",
        "LimitNOFILE=65535",
    )
    sections = {
        "Unit": order_lines(replace(inside, launcher=None)),
        "Service": service,
        "Install": (f"WantedBy={inside.wanted_by}",),
    }
    files = {
        target: unit_text(head, {"Unit": (f"Wants={' '.join(units)}",), "Install": install}),
        units[0]: unit_text(head, sections),
    }
    notes: list[Message] = [message(_SEVERAL_NOTES[options.user], name=name)]
    for engine in engines:
        after = tuple(f"{other}.service" for other in engine.after)
        made = render(engine.plan, engine.name, engine.given, replace(inside, after=after))
        files |= made.files
        # the installation is described once, for the target
        notes += [note for note in made.notes if note.id not in _OF_ONE]
    files |= {f"{GATEWAY_FOLDER}/{each}": content for each, content in gateway.files.items()}
    notes.append(message("render.stack_program", program=gateway.argv[0]))
    return Rendered(files, notes=tuple(dict.fromkeys(notes)))
