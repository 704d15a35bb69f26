"""The Serve config of one deployment, compared as one, and its YAML."""

from __future__ import annotations

from typing import Any

from gaudi_launch.core.planning.engine import Scaling
from gaudi_launch.extensions.ray.config import document

SETS = [{"modules": [0, 1]}, {"modules": [2, 3]}]


def made(kind: str, words: list[str], options: Scaling) -> dict[str, Any]:
    return document(address="0.0.0.0", port=8000, kind=kind, words=words, sets=SETS, wanted=options)


def test_a_generator_has_its_options_and_a_number_that_varies() -> None:
    words = "python3 -m x --model m --served-model-name n --dtype bfloat16 --max-model-len 512"
    options = Scaling(1, 4, 0, 20, target=10, up=30, down=600)
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
