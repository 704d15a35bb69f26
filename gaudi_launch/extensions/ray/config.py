"""The Serve config of a deployment: a document, and YAML. Pure.

`serve deploy` reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.reader import BadDocument
from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.planning.engine import Scaling
from gaudi_launch.core.planning.engine_args import EngineArgs, split_argv
from gaudi_launch.extensions.ray.schema import check

IMPORT_PATH = "gaudi_ray_app:build"
APPLICATION = "default"
PORT = "{port}"
# requests in addition to those that generate: /health, /v1/models, the next ones in the engine's
# queue
RESERVE = 8
# an engine ends within 8 s of its signal, then its remaining processes
# (runtime/gaudi_ray_engine.py)
_SHUTDOWN_SECONDS = 12


def without_address(args: EngineArgs) -> tuple[list[str], str, int]:
    """Return an engine's arguments without --host and --port, and their address."""
    text = args.last("--port") or ""
    port = 8000
    if text.isascii() and text.isdigit():
        port = int(text)
    host = args.last("--host") or "127.0.0.1"
    return list(args.without("--host", "--port", of_user=True).to_argv()), host, port


def document(
    *,
    address: str,
    port: int,
    kind: str,
    words: Sequence[str],
    sets: Sequence[Mapping[str, Any]],
    wanted: Scaling,
) -> dict[str, Any]:
    """Return the config.

    ``words`` are the inner engine's command; for ``transformers`` its options are read from them.
    """
    args: dict[str, Any] = {"kind": kind}
    if kind == "engine":
        args["argv"] = [*words, "--host", "127.0.0.1", "--port", PORT]
    else:
        args |= _plain(words)
    args["sets"] = [dict(each) for each in sets]
    deployment: dict[str, Any] = {
        "name": "Engine" if kind == "engine" else "Generator",
        "max_ongoing_requests": wanted.ongoing,
        "health_check_period_s": 5,
        "graceful_shutdown_timeout_s": _SHUTDOWN_SECONDS,
        # cards limit the replicas; CPUs are bound by set
        "ray_actor_options": {"num_cpus": 0},
    }
    if wanted.hpus:
        # a Ray without cards lacks this resource and would wait for one forever
        deployment["ray_actor_options"]["resources"] = {"HPU": wanted.hpus}
    if wanted.least == wanted.most:
        deployment["num_replicas"] = wanted.most
    else:
        deployment["autoscaling_config"] = {
            "min_replicas": wanted.least,
            "initial_replicas": wanted.least,
            "max_replicas": wanted.most,
            "target_ongoing_requests": wanted.target,
            "upscale_delay_s": wanted.up,
            "downscale_delay_s": wanted.down,
        }
    made = {
        "proxy_location": "HeadOnly",
        "http_options": {"host": address, "port": port},
        "logging_config": {"enable_access_log": False},
        "applications": [
            {
                "name": APPLICATION,
                "route_prefix": "/",
                "import_path": IMPORT_PATH,
                "args": args,
                "deployments": [deployment],
            }
        ],
    }
    wrong = check(made)
    assert not wrong, wrong
    return made


def _plain(words: Sequence[str]) -> dict[str, Any]:
    args = split_argv(words)
    return {
        "model": args.last("--model"),
        "name": args.last("--served-model-name"),
        "dtype": args.last("--dtype"),
        "max_model_len": int(args.last("--max-model-len") or 0),
        "trust_remote_code": args.has("--trust-remote-code"),
    }


def for_running_ray(
    config: Mapping[str, Any], env: Mapping[str, str], folder: str
) -> dict[str, Any]:
    """Return the config with the variables of the engine and the folder of the code."""
    application = config["applications"][0]
    variables = {**{name: env[name] for name in sorted(env)}, "PYTHONPATH": folder}
    return {**config, "applications": [{**application, "runtime_env": {"env_vars": variables}}]}


def read_yaml(text: str, path: str) -> Any:
    """Return a config file's document. Raises LaunchError (USAGE) for invalid YAML."""
    try:
        return parse_yaml(text)
    except BadDocument as error:
        raise LaunchError("ray.no_yaml", ExitCode.USAGE, path=path, why=str(error)) from None
