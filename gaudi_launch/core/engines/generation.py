"""The generation of the cards that a plan is for."""

from __future__ import annotations

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.host.accelerators import identify
from gaudi_launch.core.planning.engine import Context


def is_gaudi2(context: Context) -> bool:
    """Return True if the first card of the machine is a Gaudi2 of any form.

    Return False where it is unknown.
    """
    if not context.host.cards:
        return False
    card = context.host.cards[0]
    found = identify(card.product, device_type=card.device_type)
    return found is not None and found.id.startswith("gaudi2")


def refuse_first_gaudi(product: str) -> None:
    """Raise LaunchError (MACHINE) for the product ID of the first Gaudi.

    No release of vLLM runs on it (HabanaAI/vllm-fork#776: "the minimum version is Gaudi2").
    """
    if product == "gaudi1":
        raise LaunchError("engines.first_gaudi", ExitCode.MACHINE)
