"""Host memory for engines that load the weights into it first. Pure."""

from __future__ import annotations

from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models import sizing
from gaudi_launch.planning.decisions import Decisions
from gaudi_launch.planning.engine import Context

_MIB_PER_GIB = 1024


def check_host_memory(context: Context, decisions: Decisions) -> None:
    """Refuse or warn when the weights on disk do not fit into the host's memory.

    Each rank loads its part, so all ranks of a machine together have the weights once
    (HabanaAI/vllm-fork@277a33cd9:vllm/model_executor/model_loader/loader.py load_model: the model
    of one rank is made on the load device). Other buffers are not counted. Raises LaunchError
    (MACHINE) for a machine that is too small, unless forced.
    """
    model, host, request = context.model, context.host, context.request
    needed = sizing.weight_bytes(model, model.quantization or model.dtype or "bfloat16")
    total = host.memory_total_mib
    if needed is None or total is None:
        return
    shown = f"{needed / sizing.GIB:.1f}"
    if needed > total << 20:
        have = f"{total / _MIB_PER_GIB:.1f}"
        error = LaunchError("plan.host_memory", ExitCode.MACHINE, needed=shown, total=have)
        if not request.force:
            raise error
        decisions.warnings.append(error.text)
        return
    available = host.memory_available_mib
    if available is not None and needed > available << 20:
        decisions.warn(
            "plan.host_memory_low", needed=shown, available=f"{available / _MIB_PER_GIB:.1f}"
        )
