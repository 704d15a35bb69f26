"""stack init: an entry for each model, and a file that is written once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.extensions.stack import init as stack_init
from gaudi_launch.extensions.stack.init import init
from tests.support.refusals import refused

pytestmark = pytest.mark.usefixtures("plain_english")


def test_each_model_has_a_name_and_a_repeated_one_more_replicas() -> None:
    models = ["org/Big_Model 1!", "x/y/", "org/Big_Model 1!", "other/y", "org/Big_Model 1!", "/"]
    options = {"engine": "vllm-gaudi", "python": "/p"}
    more = {"options": {"engine": "vllm-gaudi", "python": "/p"}}
    assert stack_init._entries(models, options) == [
        {"name": "big_model-1", "model": "org/Big_Model 1!", **more, "replicas": 3},
        {"name": "y", "model": "x/y/", **more},
        {"name": "y-2", "model": "other/y", **more},
        {"name": "model", "model": "/", **more},
    ]
    assert stack_init._entries(["a"], {"engine": ""}) == [{"name": "a", "model": "a"}]


def test_nothing_is_written_without_models_a_port_or_a_folder(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "site.yaml"
    with refused("stack.init_models", ExitCode.USAGE):
        init([], path)
    with refused("stack.not_written", ExitCode.FAILED, path=str(path), why=os.strerror(2)):
        init(["Qwen/Qwen3-8B"], path, machine="simulated:hls2")
    with pytest.raises(LaunchError) as raised:
        init(["org/a"], tmp_path / "a.yaml", port="70000")
    assert raised.value.exit_code is ExitCode.USAGE
    assert not list(tmp_path.glob("*.yaml"))


def test_models_share_the_cards_that_are_left(tmp_path: Path) -> None:
    large = ["Qwen/Qwen2.5-72B-Instruct", "meta-llama/Llama-3.3-70B-Instruct"]
    planned = init(large, tmp_path / "stack.yaml", machine="simulated:hls2")
    assert [len(each.modules) for each in planned.services] == [4, 4]
