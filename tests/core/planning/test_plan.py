"""The JSON of a plan, and the answers of its parts."""

from __future__ import annotations

from dataclasses import asdict

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Buckets
from gaudi_launch.core.buckets.warmup_time import Estimate
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.placement import Placement
from gaudi_launch.core.planning.plan import Command, EngineIdentity, Overridden, Plan, Setting

REASON = message("plan.flag", flag="-b")
WARNING = message("plan.scale_out", cards=8, engine="tgi")
SETTING = Setting(
    "--max-num-seqs", "8", "option", "flag", REASON, "here", (Overridden("4", "profile"),)
)


def test_every_part_of_a_plan_is_in_its_json() -> None:
    container = Container("image", ("--port", "80"), ports=((80, 8080),))
    made = Plan(
        engine=EngineIdentity(
            "tgi", "3.3.5", "/python", {"git": "abc"}, word="tgi@3.3.5", simulated=True
        ),
        model={"name": "m", "layers": 2},
        placement=Placement((0, 1), (0, 1, 2, 8), (0, 1), cpus_by_module={0: (0, 1)}),
        settings=(SETTING,),
        command=Command(
            ("docker", "run"), {"B": "2", "A": "1"}, files={"/f": "text"}, container=container
        ),
        url="http://127.0.0.1:80",
        buckets=Buckets([[1, 128, 0]], [[1, 1, 128], [2, 1, 128]]),
        bucket_strategy="exponential",
        memory={"weights": 1.5},
        estimate=Estimate(2.0, 6.6, message("warmup.basis_published")),
        warnings=(WARNING,),
        cache={"key": "k"},
        num_blocks=77,
        dtype="fp8",
        reference_differences=(REASON,),
    )
    assert made.to_json() == {
        "schema": 1,
        "engine": {
            "name": "tgi",
            "version": "3.3.5",
            "python": "/python",
            "simulated": True,
            "git": "abc",
        },
        "model": {"name": "m", "layers": 2},
        "dtype": "fp8",
        "modules": [0, 1],
        "cpus": "0-2,8",
        "numa_nodes": [0, 1],
        "env": {"A": "1", "B": "2"},
        "argv": ["docker", "run"],
        "url": "http://127.0.0.1:80",
        "buckets": {
            "strategy": "exponential",
            "prompt": [[1, 128, 0]],
            "decode": [[1, 1, 128], [2, 1, 128]],
            "graphs": 3,
        },
        "memory": {"weights": 1.5},
        "num_blocks": 77,
        "estimate": {
            "warmup_seconds": {"low": 2.0, "high": 6.6},
            "basis": message("warmup.basis_published").render(),
        },
        "cache": {"key": "k"},
        "settings": [
            {
                "name": "--max-num-seqs",
                "value": "8",
                "kind": "option",
                "source": "flag",
                "reason": REASON.render(),
                "origin": "here",
                "beaten": [{"value": "4", "source": "profile"}],
            }
        ],
        "warnings": [{"id": "plan.scale_out", "message": WARNING.render()}],
        "reference_differences": [{"id": "plan.flag", "message": REASON.render()}],
        "files": {"/f": "text"},
        "container": asdict(container),
    }
