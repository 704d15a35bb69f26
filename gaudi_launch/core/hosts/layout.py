"""Layout of a model over hosts: tensor, pipeline, data parallel sizes. Pure.

Sources: HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart (README, set_head_node.sh: TP 16,
VLLM_EP_SIZE 16 over two nodes); HabanaAI/vllm-fork@aice/v1.22.0:README_GAUDI.md (Llama-3.1-405B: TP
16 over two nodes by Ray, or TP 8 with two pipeline stages).
"""

from __future__ import annotations

from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import divides
from gaudi_launch.core.planning.engine import Engine, OverHosts

GAUDI_README = "HabanaAI/vllm-fork@aice/v1.22.0:README_GAUDI.md"


@dataclass(frozen=True)
class LayoutOptions:
    """The sizes that the user fixed; None: to be chosen."""

    tensor: int | None = None
    pipeline: int | None = None
    data: int | None = None


@dataclass(frozen=True)
class Layout:
    """A layout: ``tensor`` x ``pipeline`` cards are one engine.

    ``data`` engines run in parallel, each on separate hosts. ``expert``: how many cards share the
    experts, 0 for a model without.
    """

    tensor: int
    pipeline: int
    data: int
    expert: int
    hosts: int
    cards_per_host: int
    reason: Message
    origin: str
    warnings: tuple[Message, ...] = ()

    @property
    def world(self) -> int:
        """Return the number of cards of one engine."""
        return self.tensor * self.pipeline

    @property
    def ray(self) -> bool:
        """Return True if one engine spans hosts."""
        return self.world > self.cards_per_host


def choose(
    model: Model, engine: Engine, hosts: int, cards_per_host: int, asked: LayoutOptions
) -> Layout:
    """Return the layout of ``model`` on ``hosts`` of ``cards_per_host`` cards.

    Raises LaunchError: USAGE for sizes that do not multiply to the number of cards, MODEL for heads
    that cannot be divided.
    """
    over = engine.over_hosts or OverHosts()
    data = asked.data or 1
    if hosts % data:
        raise LaunchError("cluster.data", ExitCode.USAGE, data=data, hosts=hosts)
    total = hosts // data * cards_per_host
    tensor, pipeline, reason, origin = _sizes(
        model, over.tensor_guide, hosts // data, cards_per_host, asked
    )
    if tensor * pipeline != total:
        raise LaunchError(
            "cluster.sizes",
            ExitCode.USAGE,
            tensor=tensor,
            pipeline=pipeline,
            data=data,
            total=total,
        )
    if not divides(model, tensor):
        # the fewest stages that divide the model over this number of cards
        stages = next(
            (n for n in range(1, total + 1) if total % n == 0 and divides(model, total // n)), total
        )
        raise LaunchError(
            "cluster.heads",
            ExitCode.MODEL,
            heads=model.heads,
            kv_heads=model.kv_heads or "-",
            tensor=tensor,
            would=f"--tensor-parallel {total // stages} --pipeline-parallel {stages}",
        )
    if pipeline > max(1, model.layers or pipeline):
        raise LaunchError("cluster.layers", ExitCode.MODEL, layers=model.layers, pipeline=pipeline)
    warnings = []
    if pipeline > 1 and over.tensor_guide:
        warnings.append(message("cluster.pipeline_untried"))
    if tensor > cards_per_host and over.old_ray:
        warnings.append(message("cluster.old_ray", version=engine.identity.version))
    if data > 1:
        warnings.append(message("cluster.data_router", data=data))
    expert = tensor * bool(model.moe)
    return Layout(
        tensor, pipeline, data, expert, hosts, cards_per_host, reason, origin, tuple(warnings)
    )


def _sizes(
    model: Model, guide: str, hosts: int, cards: int, asked: LayoutOptions
) -> tuple[int, int, Message, str]:
    total = hosts * cards
    if asked.tensor or asked.pipeline:
        tensor = asked.tensor or max(1, total // (asked.pipeline or 1))
        pipeline = asked.pipeline or max(1, total // tensor)
        return (
            tensor,
            pipeline,
            message("cluster.as_asked"),
            "--tensor-parallel, --pipeline-parallel",
        )
    if hosts == 1:
        return total, 1, message("cluster.one_host"), ""
    if guide:
        return total, 1, message("cluster.deepseek", total=total), guide
    if divides(model, total):
        return total, 1, message("cluster.all_tensor", total=total), GAUDI_README
    return (
        cards,
        hosts,
        message("cluster.stages", total=total, cards=cards, hosts=hosts),
        GAUDI_README,
    )
