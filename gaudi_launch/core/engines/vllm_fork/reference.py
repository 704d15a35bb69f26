"""Deliberate differences of reference tuning from the start scripts.

The engine gets the scripts' environment and options; these are the differences around them. The
scripts: HabanaAI/vllm-fork@aice/v1.21.0 scripts/start_gaudi_vllm_server.sh and scripts/utils.sh
(1.22 alike), deepseek_r1 scripts/quickstart/start_vllm.sh.
"""

from __future__ import annotations

from collections.abc import Iterable

from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.cpus import format_cpus
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command
from gaudi_launch.core.planning.request import Request

# its script uses all cards without a check, binds no CPUs, and ends in the engine itself
_DEEPSEEK = "deepseek_r1"


def deliberate_differences(
    request: Request, host: Host, placement: Placement, command: Command, version: str
) -> tuple[Message, ...]:
    """Return the differences of this plan of a fork's ``version`` from its script."""
    found = []
    cores = _first_threads(host, command.cpus)
    if cores != command.cpus:
        found.append(
            message("reference.cpus", ours=format_cpus(command.cpus), script=format_cpus(cores))
        )
    if request.modules is None and version != _DEEPSEEK:
        cards = ",".join(str(module) for module in placement.modules)
        found.append(message("reference.cards", cards=cards))
    if version == _DEEPSEEK:
        found.append(message("reference.busy_deepseek"))
        return tuple(found)
    found.append(message("reference.busy"))
    found.append(message("reference.exit_code"))
    found.append(message("reference.shell"))
    return tuple(found)


def _first_threads(host: Host, cpus: Iterable[int]) -> tuple[int, ...]:
    """Return the first CPU of every core, which is all that the scripts bind."""
    first = []
    for cpu in cpus:
        siblings = host.cpu_siblings.get(cpu, (cpu,))
        if cpu == min(siblings):
            first.append(cpu)
    return tuple(first)
