"""The Serve config of a deployment: what `serve deploy` takes, as a document and as YAML. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gaudi_launch.engines.ray_schema import check
from gaudi_launch.errors import ExitCode, LaunchError

IMPORT_PATH = "gaudi_ray_app:build"
APPLICATION = "default"
PORT = "{port}"
# requests besides those that generate: /health, /v1/models, the next ones in the engine's own queue
RESERVE = 8
# an engine ends within 8 s of its signal, then what it left (in_ray/gaudi_ray_engine.py)
_SHUTDOWN_SECONDS = 12


@dataclass(frozen=True)
class Wanted:
    """Replicas and requests of a deployment; ``target``, ``up`` and ``down`` only count where they may vary."""

    least: int
    most: int
    hpus: int
    ongoing: int
    target: int = 0
    up: int = 0
    down: int = 0


def without_address(argv: Sequence[str]) -> tuple[list[str], str, int]:
    """An engine's words without --host and --port, and the address that they named (the last counts)."""
    words: list[str] = []
    host, port = "127.0.0.1", 8000
    rest = iter(argv)
    for word in rest:
        name, equals, value = word.partition("=")
        if name not in ("--host", "--port"):
            words.append(word)
            continue
        value = value if equals else next(rest, "")
        if name == "--host":
            host = value or host
        elif value.isascii() and value.isdigit():
            port = int(value)
    return words, host, port


def document(
    *, address: str, port: int, kind: str, words: Sequence[str], sets: Sequence[Mapping[str, Any]], wanted: Wanted
) -> dict[str, Any]:
    """The config. ``words`` are the inner engine's command; for ``transformers`` its options are read from them."""
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
        # cards are what counts; CPUs are bound by set
        "ray_actor_options": {"num_cpus": 0, "resources": {"HPU": wanted.hpus}},
    }
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
    values = dict(zip(words, [*words[1:], ""], strict=True))
    return {
        "model": values["--model"],
        "name": values["--served-model-name"],
        "dtype": values["--dtype"],
        "max_model_len": int(values["--max-model-len"]),
        "trust_remote_code": "--trust-remote-code" in words,
    }


def as_yaml(config: Mapping[str, Any], env: Mapping[str, str], folder: str) -> str:
    """The config for a Ray that somebody else started: with the variables and the folder of the code."""
    import yaml

    application = config["applications"][0]
    variables = {**{name: env[name] for name in sorted(env)}, "PYTHONPATH": folder}
    whole = {**config, "applications": [{**application, "runtime_env": {"env_vars": variables}}]}
    return yaml.safe_dump(whole, sort_keys=False, allow_unicode=True, width=110)


def read_yaml(text: str, path: str) -> Any:
    """A config file's document. Raises LaunchError (USAGE) when it is no YAML."""
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        why = " ".join(str(error).split())[:300]
        raise LaunchError("ray.no_yaml", ExitCode.USAGE, path=path, why=why) from None
