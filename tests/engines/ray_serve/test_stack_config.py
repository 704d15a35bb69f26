"""The Serve config of several models: compared as one."""

from __future__ import annotations

from typing import Any

from gaudi_launch.engines.ray_serve.config import ScalingOptions, document
from gaudi_launch.engines.ray_serve.stack_config import (
    StackAddress,
    StackDeployment,
    stack_document,
)

PLAIN = StackAddress("0.0.0.0", 8000)


def deployment(name: str, replicas: int, **more: Any) -> StackDeployment:
    config = document(
        address="127.0.0.1",
        port=1,
        kind="engine",
        words=["python3", "-m", name],
        sets=[{"modules": [replicas]}],
        wanted=ScalingOptions(replicas, replicas, 1, 100),
    )
    return StackDeployment(name, (name, f"{name}-too"), config, **more)


def test_each_model_has_a_deployment_and_the_router_takes_the_requests_of_all() -> None:
    models = [
        deployment("a", 1, env={"B": "2", "A": "1"}),
        deployment("b", 2, env={}),
    ]
    made = stack_document(models, PLAIN, "/code")
    (application,) = made.pop("applications")
    assert made == {
        "proxy_location": "HeadOnly",
        "http_options": {"host": "0.0.0.0", "port": 8000},
        "logging_config": {"enable_access_log": False},
    }
    deployments = application.pop("deployments")
    end = ["--host", "127.0.0.1", "--port", "{port}"]
    assert application == {
        "name": "default",
        "route_prefix": "/",
        "import_path": "gaudi_ray_app:build",
        "runtime_env": {"env_vars": {"PYTHONPATH": "/code"}},
        "args": {
            "kind": "stack",
            "models": [
                {
                    "deployment": "a",
                    "names": ["a", "a-too"],
                    "argv": ["python3", "-m", "a", *end],
                    "sets": [{"modules": [1]}],
                },
                {
                    "deployment": "b",
                    "names": ["b", "b-too"],
                    "argv": ["python3", "-m", "b", *end],
                    "sets": [{"modules": [2]}],
                },
            ],
        },
    }
    assert [
        (each["name"], each["num_replicas"], each["max_ongoing_requests"]) for each in deployments
    ] == [("a", 1, 100), ("b", 2, 100), ("Router", 1, 300)]
    assert [each["ray_actor_options"] for each in deployments] == [
        {
            "num_cpus": 0,
            "resources": {"HPU": 1},
            "runtime_env": {"env_vars": {"A": "1", "B": "2"}},
        },
        {"num_cpus": 0, "resources": {"HPU": 1}},
        {"num_cpus": 0},
    ]
    assert list(deployments[0]["ray_actor_options"]["runtime_env"]["env_vars"]) == ["A", "B"]


def test_keys_and_certificates_are_named_by_their_files() -> None:
    address = StackAddress("::", 443, keys="/k", certificate="/c.pem", key="/key.pem")
    made = stack_document([deployment("a", 1, env={})], address, "/code")
    assert made["http_options"] == {
        "host": "::",
        "port": 443,
        "ssl_certfile": "/c.pem",
        "ssl_keyfile": "/key.pem",
    }
    assert made["applications"][0]["args"]["keys_file"] == "/k"
