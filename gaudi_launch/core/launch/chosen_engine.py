"""The engine of a launch: its release, interpreter and options."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.base.paths import machine_root
from gaudi_launch.core.base.steps import step
from gaudi_launch.core.engines import detect as detection
from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.engines.detect import Detect, Installed, is_elsewhere
from gaudi_launch.core.launch.machine import LaunchMachine
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.config_file import named_file, with_file
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.passthrough import with_options, with_own_words
from gaudi_launch.core.planning.request import LIBFABRIC, Request
from gaudi_launch.core.planning.secret_args import CONFIG

_log = logging.getLogger(__name__)


def choose_engine(
    request: Request,
    machine: LaunchMachine,
    model: Callable[[], Model],
    detect: Detect = detection.detect,
    *,
    in_image: bool,
) -> tuple[Request, Engine, Installed | None]:
    """Return the completed request, its engine, and the interpreter queried for it.

    Raises LaunchError.
    """
    here = machine.is_here
    look = here or not is_elsewhere(request.python, here=here)
    with step("screen.step_engine"):
        engine, installed = planned_engine(
            request,
            model,
            machine.product,
            here=here,
            look=look and not in_image,
            detect=detect,
        )
    request = for_engine(_with_config_file(request, engine), engine)
    if here:
        request = replace(request, libfabric_root=_libfabric_root())
    return request, engine, installed


def planned_engine(
    request: Request,
    model: Callable[[], Model],
    product: Callable[[], str],
    *,
    here: bool,
    look: bool = True,
    detect: Detect = detection.detect,
) -> tuple[Engine, Installed | None]:
    """Return the engine of a request, and the interpreter that was queried for it.

    Every command that plans, sizes or estimates takes this one. ``look``: an interpreter may
    have it. Raises LaunchError.
    """

    def suited(found: Installed | None = None) -> str:
        return registry.name_for(request, found, model, product)

    installed = None
    if look:
        installed = installed_for(request, suited, here=here, detect=detect)
    return registry.find(suited(installed), installed, request.python), installed


def installed_for(
    request: Request,
    first: Callable[[], str],
    *,
    here: bool,
    detect: Detect = detection.detect,
) -> Installed | None:
    """Return the interpreter of a request's engine.

    Of several that `setup` made it is that of ``first``.
    Return None for an engine in an image, or that of another machine (not ``here``).
    """
    name = request.engine
    if entries.entry(name).in_container:
        return None
    # the embedded engine with Ray does not apply to another machine
    elsewhere = entries.is_ray(name) and not here
    outer = name.partition(":")[0]
    if request.python is None and entries.is_made_by_steps(outer) and not elsewhere:
        return entries.installation(outer).detected(name)
    if here or request.python is not None or name == "auto":
        return entries.detect_engine(request.python, name, first, detect)
    return None


def for_engine(request: Request, engine: Engine) -> Request:
    """Return the request with this engine's options, interpreter and bucket file.

    The file's text is read for an engine that stops at a line that it cannot read. Raises
    LaunchError (USAGE) where there is no such file.
    """
    if request.tuning == "auto" and not entries.entry(request.engine).in_container:
        request = with_own_words(request, engine.identity, engine.lacks)
    if not engine.needs_cards and request.python is None:
        request = replace(request, python=engine.identity.python)
    path = mapped(request.environment.get, engine.innermost.bucket_file)
    if not path:
        return request
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as file:
            return replace(request, bucket_file=file.read(1 << 22))
    except (OSError, ValueError) as error:
        why = str(error)
        if isinstance(error, OSError):
            why = error.strerror or why
        raise LaunchError("gaudi.file_unread", ExitCode.USAGE, path=path, why=why) from None


def _with_config_file(request: Request, engine: Engine) -> Request:
    """Return the request with the options of the user's --config FILE.

    It is for an engine that reads one, and may not exist yet.

    Raises LaunchError (USAGE) where the engine would stop on it.
    """
    if request.secret_options and engine.config_file != "read":
        # the first option of the file as the user wrote it
        key = json.loads(request.secret_options.partition(": ")[0])
        raise LaunchError("plan.secret_argument", ExitCode.USAGE, option=f"--{key}")
    kind = engine.innermost.config_file
    request = with_options(request, engine.innermost.identity)
    if not kind or not request.args.given(CONFIG):
        return request
    path = named_file(request.args)
    if path is None:
        return request
    if kind == "breaks":
        raise LaunchError(
            "plan.config_breaks", ExitCode.USAGE, path=path, engine=engine.innermost.identity.label
        )
    try:
        with Path(path).open(encoding="utf-8") as file:
            return with_file(request, path, file.read(1 << 20))
    except (OSError, UnicodeDecodeError) as error:
        _log.debug("%s is not read: %s", path, error)
        return replace(request, unread_file=path)


def _libfabric_root() -> str:
    """Return the folder into which `setup --scale-out` installed libfabric.

    Return "" without one.
    """
    library = machine_root() / LIBFABRIC.lstrip("/") / "lib" / "libfabric.so"
    if not library.exists():
        return ""
    return LIBFABRIC
