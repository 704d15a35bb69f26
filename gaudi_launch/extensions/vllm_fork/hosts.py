"""The changes of the two-node guide to deepseek_r1's settings. Pure."""

from __future__ import annotations

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.planning.engine import Spread
from gaudi_launch.core.planning.plan import Setting

GUIDE = "HabanaAI/vllm-fork@deepseek_r1:scripts/quickstart/set_head_node.sh"
_INC = "VLLM_REQUANT_FP8_INC"
# the quantisation file that the branch's guide pairs with a bf16 cache
_BF16_CACHE = "scripts/quant_configs/inc_quant_per_channel_bf16kv.json"
_TWO_NODES = (
    ("env", "VLLM_GRAPH_RESERVED_MEM", "0.2"),
    ("option", "--gpu_memory_utilization", "0.9"),
    ("option", "--num-scheduler-steps", "1"),
)


def two_nodes(spread: Spread) -> tuple[Setting, ...]:
    """Return the changes: experts over all cards, and the script's values.

    The latter are for one engine over two nodes.
    """
    experts = message("cluster.why_experts", cards=spread.tensor)
    changed = [Setting("VLLM_EP_SIZE", str(spread.tensor), "env", "computed", experts, GUIDE)]
    if not spread.ray:
        return tuple(changed)
    reason = message("cluster.why_two_nodes")
    for kind, name, value in _TWO_NODES:
        changed.append(
            Setting(name, value, "env" if kind == "env" else "option", "computed", reason, GUIDE)
        )
    values = {setting.name: setting.value for setting in reversed(spread.settings)}
    config = values.get("QUANT_CONFIG")
    theirs = ""
    if config is not None and "QUANT_CONFIG" in spread.own:
        theirs = config
    # the guide pairs bf16kv with auto, and fp8kv with fp8_inc, which the single-node script sets
    if "fp8kv" not in theirs and not spread.measured:
        changed.append(Setting("--kv-cache-dtype", "auto", "option", "computed", reason, GUIDE))
    if spread.source and values.get(_INC) == "1":
        # both are in the checkout on each host
        file = f"{spread.source}/{_BF16_CACHE}"
        changed.append(Setting("QUANT_CONFIG", file, "env", "computed", reason, GUIDE))
        prefix = "INC_MEASUREMENT_DUMP_PATH_PREFIX"
        changed.append(Setting(prefix, spread.source, "env", "computed", reason, GUIDE))
    return tuple(changed)
