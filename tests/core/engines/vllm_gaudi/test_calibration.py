"""The calibration of the plugin: its scripts, and the rules of each family."""

from __future__ import annotations

from gaudi_launch.core.engines.base import STEPS
from gaudi_launch.core.engines.vllm_gaudi.calibration import CALIBRATION
from gaudi_launch.core.planning.calibration_rules import Calibration, Rules

GATE = r"mlp\.gate\b"


def rules(
    *,
    names: tuple[str, ...] = (),
    scales: str = "scalar",
    env: dict[str, str] | None = None,
    words: tuple[tuple[str, ...], tuple[str, ...]] = ((), ()),
) -> Rules:
    return Rules(
        measure_names=names,
        types=(),
        names=names,
        scales=scales,
        env=env or {},
        measure_words=words[0],
        quantise_words=words[1],
        measure_more={"calibration_sample_interval": 1},
        quant_more={},
    )


def test_each_family_has_its_rules() -> None:
    share = ("--gpu-memory-utilization", "0.1")
    names = (
        "mixtral-8x7b",
        "deepseek-r1",
        "my-deepseek",
        "granite-4-tiny",
        "my-granite-4",
        "qwen3",
    )
    assert {name: CALIBRATION.rules(name) for name in names} == {
        "mixtral-8x7b": rules(names=("self_attn", "lm_head"), scales="CONST"),
        "deepseek-r1": rules(names=("lm_head", GATE), env={"VLLM_HPU_FORCE_CHANNEL_FP8": "0"}),
        "my-deepseek": rules(env={"VLLM_HPU_FORCE_CHANNEL_FP8": "0"}),
        "granite-4-tiny": rules(
            names=("mamba", "self_attn"),
            env={"VLLM_CONTIGUOUS_PA": "false"},
            words=(share, ("--max-model-len", "2048", *share)),
        ),
        "my-granite-4": rules(
            env={"VLLM_CONTIGUOUS_PA": "false"},
            words=(share, ("--max-model-len", "2048", *share)),
        ),
        "qwen3": rules(),
    }


def test_the_scripts_are_the_plugins() -> None:
    found = CALIBRATION
    assert found == Calibration(
        release="vllm-gaudi",
        family="vllm-gaudi",
        rules=CALIBRATION.rules,
        home="https://github.com/vllm-project/vllm-gaudi",
        branch="main",
        folder="calibration",
        steps={
            **STEPS,
            5: ("step-5-unify_measurements.py",),
            6: ("step-6-expand-measurements.py",),
        },
        installed=("plugin_source", "extension_source"),
        expands=True,
        published=False,
    )
