"""The Serve config of one deployment, compared as one, and its YAML."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.engines.ray_serve.config import (
    ScalingOptions,
    document,
    for_running_ray,
    read_yaml,
    without_address,
)
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.planning.engine_args import engine_args

FIXED = ScalingOptions(2, 2, 4, 264)
SETS = [{"modules": [0, 1]}, {"modules": [2, 3]}]


def made(kind: str, words: list[str], options: ScalingOptions) -> dict[str, Any]:
    return document(address="0.0.0.0", port=8000, kind=kind, words=words, sets=SETS, wanted=options)


def test_an_engine_listens_inside_and_has_its_cards() -> None:
    assert made("engine", ["python3", "-m", "vllm"], FIXED) == {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "0.0.0.0", "port": 8000},
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": "default",
                "route_prefix": "/",
                "import_path": "gaudi_ray_app:build",
                "args": {
                    "kind": "engine",
                    "argv": ["python3", "-m", "vllm", "--host", "127.0.0.1", "--port", "{port}"],
                    "sets": SETS,
                },
                "deployments": [
                    {
                        "name": "Engine",
                        "max_ongoing_requests": 264,
                        "health_check_period_s": 5,
                        "graceful_shutdown_timeout_s": 12,
                        "ray_actor_options": {"num_cpus": 0, "resources": {"HPU": 4}},
                        "num_replicas": 2,
                    }
                ],
            }
        ],
    }


def test_a_generator_has_its_options_and_a_number_that_varies() -> None:
    words = "python3 -m x --model m --served-model-name n --dtype bfloat16 --max-model-len 512"
    options = ScalingOptions(1, 4, 0, 20, target=10, up=30, down=600)
    application = made("transformers", [*words.split(), "--trust-remote-code"], options)[
        "applications"
    ][0]
    assert application["args"] == {
        "kind": "transformers",
        "model": "m",
        "name": "n",
        "dtype": "bfloat16",
        "max_model_len": 512,
        "trust_remote_code": True,
        "sets": SETS,
    }
    assert application["deployments"] == [
        {
            "name": "Generator",
            "max_ongoing_requests": 20,
            "health_check_period_s": 5,
            "graceful_shutdown_timeout_s": 12,
            "ray_actor_options": {"num_cpus": 0},
            "autoscaling_config": {
                "min_replicas": 1,
                "initial_replicas": 1,
                "max_replicas": 4,
                "target_ongoing_requests": 10,
                "upscale_delay_s": 30,
                "downscale_delay_s": 600,
            },
        }
    ]
    plain = made("transformers", ["python3", "-m", "x", "--model", "m"], options)
    args = plain["applications"][0]["args"]
    assert (args["max_model_len"], args["trust_remote_code"]) == (0, False)


def test_the_address_is_taken_out_of_the_arguments() -> None:
    ours = [("--host", "0.0.0.0"), ("--port", "30001"), ("--model", "m")]
    args = engine_args(ours=ours, user=("--seed", "1", "--port", "9000"))
    assert without_address(args) == (["--model", "m", "--seed", "1"], "0.0.0.0", 9000)
    assert without_address(engine_args(user=("--port", "x"))) == ([], "127.0.0.1", 8000)


def test_a_running_ray_gets_the_variables_and_the_code() -> None:
    config = made("engine", ["python3"], FIXED)
    found = for_running_ray(config, {"B": "2", "A": "\u5361"}, "/code")
    runtime = found["applications"][0].pop("runtime_env")
    assert found == config
    assert list(runtime["env_vars"].items()) == [
        ("A", "\u5361"),
        ("B", "2"),
        ("PYTHONPATH", "/code"),
    ]


def test_a_file_that_is_no_yaml_is_named() -> None:
    with pytest.raises(LaunchError) as caught:
        read_yaml("a: [", "/f.yaml")
    error = caught.value
    assert (error.id, error.exit_code, error.text.values["path"]) == (
        "ray.no_yaml",
        ExitCode.USAGE,
        "/f.yaml",
    )
    why = error.text.values["why"]
    assert "\n" not in why and why.startswith("line 2: ") and len(why) <= 300
