"""Options as the command line that gives them, to be copied."""

from __future__ import annotations

from gaudi_launch.core.base.redact_values import redact_arguments
from gaudi_launch.core.engines.entries import entry
from gaudi_launch.core.launch.saved_plan import own_part
from gaudi_launch.core.planning.launch_options import LaunchOptions


def serve_command(options: LaunchOptions) -> tuple[str, ...]:
    """Return the serve command of these options, without secrets and --machine.

    An engine with simulated cards keeps the machine that has them.

    >>> four = LaunchOptions(model="m", cards=4, force=True, machine="x", extra=("--seed", "7"))
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
    for name, option in options.options_given():
        if name in left_out:
            continue
        if option.many:
            words += [word for each in getattr(options, name) for word in (option.names[0], each)]
            continue
        words.append(option.names[0])
        if not option.switch:
            words.append(options.text(name))
    if options.extra:
        words += ["--", *redact_arguments(options.extra)]
    return tuple(words)
