"""From the options of ``gaudi-launch render`` to files: the plan with what a file needs, printed or written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gaudi_launch.cli.options import Prepared
    from gaudi_launch.planning.container import Container
    from gaudi_launch.planning.plan import Plan
    from gaudi_launch.render.records import Rendered


@dataclass(frozen=True)
class Made:
    """A plan ready to be rendered. ``files`` are texts that belong to it, by name; ``live`` is a plan for this
    machine."""

    prepared: Prepared
    plan: Plan
    name: str
    files: dict[str, str]
    live: bool

    @property
    def container_name(self) -> str:
        """The name as containers take it."""
        from gaudi_launch.render.container import container_name

        return container_name(self.name)

    @property
    def exported(self) -> dict[str, str]:
        """What the user exported."""
        return dict(self.prepared.request.environment)

    def container(self, image: str | None, *, own_network: bool = False) -> Container:
        """The plan as a container."""
        from gaudi_launch.render.container import container_of
        from gaudi_launch.render.text import check_words

        check_words(self.plan)
        return container_of(
            self.plan,
            self.prepared.host,
            environment=self.exported,
            image=image,
            own_network=own_network,
        )

    def dockerfile(self, image: str | None) -> str | None:
        """The text that builds the container's image, None for one that is published or was named."""
        from gaudi_launch.engines.recipe import Wishes, dockerfile
        from gaudi_launch.engines.releases import release_of

        release = release_of(self.plan.engine.label, self.plan.engine.version)
        if image is not None or release is None or release.whole_image is not None:
            return None
        return dockerfile(release, Wishes())


def make(asked: dict[str, Any], name: str | None, output: str | None, *, carries_files: bool = False) -> Made:
    """Plan as ``plan`` does, with what a file needs: whole paths, a name, the plan's own files in their place.

    ``carries_files``: what is rendered writes those files itself.
    """
    import shutil
    from pathlib import Path

    from gaudi_launch.cli.options import prepare
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.render.text import with_exported, with_files
    from gaudi_launch.services import state
    from gaudi_launch.services.launch import address

    if name is not None:
        state.check_name(name)
    wanted = _whole_paths(asked)
    live = asked["machine"] is None
    # of another machine's interpreter only the path is known
    elsewhere = None if live or not wanted["python"] or shutil.which(wanted["python"]) else wanted["python"]
    prepared = prepare({**wanted, "python": None} if elsewhere else wanted, must_exist=False)
    plan = prepared.plan()
    cached = prepared.cached(plan)
    plan = cached.plan if cached is not None else plan
    if plan.command.files and output is None and not carries_files:
        raise LaunchError("render.needs_folder", ExitCode.USAGE, count=len(plan.command.files))
    program = elsewhere or (shutil.which(plan.command.argv[0]) if live else None)
    plan = with_exported(_with_program(plan, program), prepared.request.environment)
    files: Mapping[str, str] = {}
    if not carries_files:
        plan, files = with_files(plan, Path(output or ".").expanduser())
    _host, port = address(plan.url)
    made = Made(prepared, plan, name or state.default_name(prepared.model.name, str(port)), dict(files), live)
    for warning in plan.warnings:
        say(warning.render())
    return made


def _whole_paths(asked: dict[str, Any]) -> dict[str, Any]:
    """The options with paths that mean the same in any folder."""
    from pathlib import Path

    whole = dict(asked)
    for field in ("model", "quant_config", "cache_dir"):
        value = whole[field]
        if value and (field != "model" or Path(value).expanduser().is_dir()):
            whole[field] = str(Path(value).expanduser().absolute())
    return whole


def _with_program(plan: Plan, program: str | None) -> Plan:
    """The plan with its interpreter's whole path, where that is known."""
    from dataclasses import replace

    if program is None:
        return plan
    return replace(plan, command=replace(plan.command, argv=(program, *plan.command.argv[1:])))


def finish(made: Made, target: str, rendered: Rendered, output: str | None, force: bool, as_json: bool) -> None:
    """Print or write what was rendered, with the plan's own files."""
    from dataclasses import replace

    whole = replace(rendered, files={**rendered.files, **made.files})
    hand_over(whole, target, made.name, output, force, as_json)


def hand_over(rendered: Rendered, target: str, name: str, output: str | None, force: bool, as_json: bool) -> None:
    """Print or write what was rendered; the one end of every target."""
    from gaudi_launch.cli.output import emit_json
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.messages import text
    from gaudi_launch.render.files import write

    written: list[Path] = []
    if output is not None:
        written = write(rendered, output, force=force)
    elif len(rendered.files) > 1 and not as_json:
        raise LaunchError("render.several", ExitCode.USAGE, target=target, files=", ".join(rendered.files))
    if as_json:
        emit_json(
            {
                "schema": 1,
                "target": target,
                "name": name,
                "files": [
                    {"name": file, "executable": file in rendered.executable, "text": content}
                    for file, content in rendered.files.items()
                ],
                "written": [str(path) for path in written],
                "notes": [{"id": note.id, "message": note.render()} for note in rendered.notes],
            }
        )
        return
    if output is None:
        sys.stdout.write(next(iter(rendered.files.values())))
    for path in written:
        print(path)
    for note in rendered.notes:
        say(f"{text('render.word_note')}: {note.render()}")


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
