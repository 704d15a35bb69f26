"""The cards of a request: by its options, and by what its model divides over."""

from __future__ import annotations

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import divides
from gaudi_launch.core.planning.passthrough import written
from gaudi_launch.core.planning.placement import USUAL_COUNTS, Placement, choose, parse_visible
from gaudi_launch.core.planning.request import Request


def choose_for(request: Request, host: Host, cards: int | None) -> Placement:
    """Choose the cards of a request on a host, within HABANA_VISIBLE_MODULES.

    Raises as `choose`.

    Reference tuning refuses a list that names a busy card, as the start scripts do, even when
    enough others are free (HabanaAI/vllm-fork@aice/v1.21.0:scripts/utils.sh).
    """
    given = request.environment.get("HABANA_VISIBLE_MODULES")
    visible = parse_visible(given)
    if request.tuning == "reference" and visible is not None and request.modules is None:
        busy = [module for module in visible if module not in host.free_modules]
        if busy:
            names = ",".join(map(str, busy))
            raise LaunchError("plan.visible_busy", ExitCode.MACHINE, found=given, busy=names)
    return choose(host, cards, request.modules, visible, written(request.args, "-n"))


def refuse_heads(request: Request, model: Model, cards: int) -> None:
    """Raise LaunchError (MODEL) where these cards cannot share the attention heads."""
    if model.heads and model.heads % cards:
        raise LaunchError(
            "plan.heads",
            ExitCode.MODEL,
            heads=model.heads,
            cards=cards,
            allowed=counts_for(request, model),
        )


def counts_for(request: Request, model: Model) -> str:
    """Return options with the numbers of cards that divide a model evenly."""
    option = written(request.args, "-n")
    numbers = ", ".join(f"{option} {n}" for n in USUAL_COUNTS if divides(model, n))
    return for_modules(request, numbers)


def for_modules(request: Request, numbers: str) -> str:
    """Return a remedy, whose number of cards -m would contradict."""
    if request.modules is None or f"{written(request.args, '-n')} " not in numbers:
        return numbers
    return text("placement.in_place", numbers=numbers)
