"""Libraries that HCCL needs when the cards of a job are in several link groups.

Gaudi2E inference manual 1.21, 1.2.1: more than four cards communicate over host network cards,
which needs libfabric and hccl_ofi_wrapper, with LIBFABRIC_ROOT and LD_LIBRARY_PATH set.
`engines.install.steps` builds them.
"""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.decisions import Decisions
from gaudi_launch.core.planning.engine import Context, Proposal
from gaudi_launch.core.planning.placement import spans_groups

ROOT = "LIBFABRIC_ROOT"
LIBRARIES = "LD_LIBRARY_PATH"
# folder of the wrapper (HabanaAI/hccl_demo@f623d69:README.md)
_WRAPPER_FOLDER = "/usr/lib/habanalabs"
_ORIGIN = "Gaudi2E inference manual 1.21, 1.2.1"


def with_scale_out(proposal: Proposal, context: Context, engine: str) -> Proposal:
    """Return the proposal with the variables of scale-out libraries, or a warning.

    Nothing is added for cards of one group. Reference tuning gets the warning only: the scripts set
    no such variable.
    """
    request, placement = context.request, context.placement
    if not spans_groups(context.host, placement.modules):
        return proposal
    root = request.environment.get(ROOT) or request.libfabric_root
    if not root:
        missing = message("plan.scale_out", cards=len(placement.modules), engine=engine)
        return replace(proposal, warnings=(*proposal.warnings, missing))
    if request.tuning == "reference":
        return proposal
    decisions = Decisions(request.environment)
    decisions.env(ROOT, root, message("plan.libfabric_root"), origin=_ORIGIN)
    exported = request.environment.get(LIBRARIES, "")
    ours = [
        folder for folder in (f"{root}/lib", _WRAPPER_FOLDER) if folder not in exported.split(":")
    ]
    if ours:
        value = ":".join(filter(None, [*ours, exported]))
        decisions.force_env(LIBRARIES, value, message("plan.libfabric_libraries"), origin=_ORIGIN)
    return replace(proposal, settings=(*proposal.settings, *decisions.settings()))
