"""Options as the command line that gives them, to be copied."""

from __future__ import annotations

from dataclasses import fields

from gaudi_launch.core.base.fields import option_of
from gaudi_launch.core.base.redact import redact_arguments
from gaudi_launch.core.engines.registry import entry
from gaudi_launch.core.launch.options import LaunchOptions
from gaudi_launch.core.launch.saved_plan import own_part


def serve_command(options: LaunchOptions) -> tuple[str, ...]:
    """Return the serve command of these options, without secrets and --machine.

    An engine with simulated cards keeps the machine that has them.

    >>> four = LaunchOptions(model="m", cards="4", force=True, machine="x", extra=("--seed", "7"))
    >>> " ".join(serve_command(four))
    'gaudi-launch serve m -n 4 --force -- --seed 7'
    >>> rehearsal = LaunchOptions(model="m", engine="simulated", machine="simulated:hls2")
    >>> " ".join(serve_command(rehearsal))
    'gaudi-launch serve m --machine simulated:hls2 --engine simulated'
    """
    options = own_part(options)
    left_out = {"model"}
    if not entry(options.engine or "").machine:
        left_out.add("machine")
    words = ["gaudi-launch", "serve"]
    if options.model:
        if options.model.startswith("-"):
            words.append("-w")
        words.append(options.model)
    for field in fields(options):
        option = option_of(field)
        value = getattr(options, field.name)
        if option is None or not option.names or not value or field.name in left_out:
            continue
        words.append(option.names[0])
        if not option.switch:
            words.append(str(value))
    if options.extra:
        words += ["--", *redact_arguments(options.extra)]
    return tuple(words)
