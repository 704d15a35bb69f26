"""The options of a launch, completed by its saved plan and by facts to a request."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.fields import OneNumber
from gaudi_launch.core.base.paths import cache_dir
from gaudi_launch.core.engines import entries, registry
from gaudi_launch.core.engines.install.demo import demo_dir, demo_is_ready
from gaudi_launch.core.launch.saved_plan import ComparedPlan, absolute_paths, merged
from gaudi_launch.core.models.config import refuse_address
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.core.planning.parse import MOST_CARDS
from gaudi_launch.core.planning.parse_ranges import not_reduce
from gaudi_launch.core.planning.parse_ranges import replicas as read_replicas
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.planning.secret_args import refuse_secret_args, with_secret_moved

_log = logging.getLogger(__name__)


def to_request(options: LaunchOptions, environment: Mapping[str, str] | None = None) -> Request:
    """Return the Request of these options in this process.

    It has the process's environment, its cache folder and the time. Raises LaunchError (USAGE).
    """
    return completed(
        options,
        environment=dict(os.environ if environment is None else environment),
        files_dir=str(cache_dir() / "buckets"),
        stamp=time.strftime("%Y-%m-%d-%H-%M-%S"),
    )


def completed(
    options: LaunchOptions, *, environment: Mapping[str, str], files_dir: str, stamp: str
) -> Request:
    """Return the Request of these options.

    Pure. Raises LaunchError (USAGE) for options that do not go together.
    """
    if not options.model:
        raise LaunchError("plan.no_model", ExitCode.USAGE)
    refuse_address(options.model)
    given = {each.name: getattr(options, each.name) for each in fields(LaunchOptions)}
    given["tuning"] = options.tuning or "auto"
    given["engine"] = options.engine or "auto"
    if options.inc_fp8 and given["engine"] == "auto":
        given["engine"] = registry.WITH_INC_FP8
    if isinstance(options.reduce, OneNumber) and given["tuning"] != "reference":
        raise not_reduce(options.text("reduce"))
    if options.replicas is not None:
        read_replicas("--replicas", options.text("replicas"), MOST_CARDS)
    # a switch that was not given is undecided, not False
    given["trust_remote_code"] = options.trust_remote_code or None
    return Request(**given, environment=environment, files_dir=files_dir, stamp=stamp)


def read_options(
    options: LaunchOptions, *, in_image: bool, secret_file: bool
) -> tuple[Request, str | None, ComparedPlan | None]:
    """Return the request of these options, its machine and its saved plan.

    The machine is None for this one; the plan is that of --plan, to compare with.

    ``secret_file``: a secret option that the engine reads from no variable goes into a file.
    Raises LaunchError.
    """
    options = absolute_paths(merged(options))
    request = to_request(options)
    simulated = entries.entry(request.engine).machine
    request = _with_safe_secrets(request, into_file=secret_file)
    if request.model == "demo":
        request = _demo_request(request, in_image=in_image)
    return request, options.machine or simulated or None, ComparedPlan.of(options)


def _with_safe_secrets(request: Request, *, into_file: bool) -> Request:
    """Return the request with secret options where other users cannot read them.

    Raises LaunchError (USAGE) where that is impossible.
    """
    if not entries.entry(request.engine).in_container:
        return with_secret_moved(request, into_file=into_file)
    # also with --force: other users of the machine can read the container's command line
    refuse_secret_args(engine_args(user=request.extra))
    return replace(request, environment=_standing(request.environment))


def _standing(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the current folder.

    docker needs absolute paths, and PWD may be another process's.
    """
    try:
        return {**environment, "PWD": str(Path.cwd())}
    except OSError as error:
        _log.debug("the current folder has no path: %s", error)
        return environment


def _demo_request(request: Request, *, in_image: bool) -> Request:
    """Return the request with the demo model's folder, if any, and its engine."""
    if in_image and not demo_is_ready():
        raise LaunchError("render.demo_missing", ExitCode.MODEL)
    folder = demo_dir()
    path = str(folder) if folder.is_dir() else "demo"
    engine = entries.demo_engine(request.engine)
    return replace(request, model=path, engine=engine, served_name=request.served_name or "demo")
