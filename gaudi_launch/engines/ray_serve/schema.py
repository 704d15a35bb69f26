"""The valid content of a Ray Serve config file.

Ray silently ignores unknown keys (seen with 2.60.0), so they are checked here. Keys and types: ray
2.60.0 (commit b7f4259e), python/ray/serve/schema.py and config.py; other traps were found by
running it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gaudi_launch.json_values import array, mapping
from gaudi_launch.messages import Message, message

_NUMBER = (int, float)
_APPLICATION = "applications[]"
_DEPLOYMENT = "applications[].deployments[]"

# the keys of each object by its place; a value of None accepts anything
KEYS: Mapping[str, Mapping[str, tuple[type, ...] | None]] = {
    "": {
        "proxy_location": (str,),
        "http_options": (dict,),
        "grpc_options": (dict,),
        "controller_options": (dict,),
        "logging_config": (dict,),
        "tracing_config": (dict,),
        "applications": (list,),
        "target_capacity": _NUMBER,
    },
    "http_options": {
        "host": (str,),
        "port": (int,),
        "root_path": (str,),
        "request_timeout_s": _NUMBER,
        "keep_alive_timeout_s": (int,),
        "ssl_keyfile": (str,),
        "ssl_certfile": (str,),
        "ssl_keyfile_password": (str,),
        "ssl_ca_certs": (str,),
    },
    "logging_config": {
        "encoding": (str,),
        "log_level": (str, int),
        "logs_dir": (str,),
        "enable_access_log": (bool,),
        "additional_log_standard_attrs": (list,),
    },
    _APPLICATION: {
        "name": (str,),
        "route_prefix": (str,),
        "import_path": (str,),
        "runtime_env": (dict,),
        "host": (str,),
        "port": (int,),
        "deployments": (list,),
        "autoscaling_policy": (dict,),
        "args": (dict,),
        "logging_config": (dict,),
        "external_scaler_enabled": (bool,),
    },
    _DEPLOYMENT: {
        "name": (str,),
        "num_replicas": (int, str),
        "max_ongoing_requests": (int,),
        "max_queued_requests": (int,),
        "backpressure_config": (dict,),
        "user_config": None,
        "autoscaling_config": (dict,),
        "graceful_shutdown_wait_loop_s": _NUMBER,
        "graceful_shutdown_timeout_s": _NUMBER,
        "health_check_period_s": _NUMBER,
        "health_check_timeout_s": _NUMBER,
        "ray_actor_options": (dict,),
        "placement_group_bundles": (list,),
        "placement_group_strategy": (str,),
        "placement_group_bundle_label_selector": (list,),
        "max_replicas_per_node": (int,),
        "logging_config": (dict,),
        "request_router_config": (dict,),
        "gang_scheduling_config": (dict,),
        "deployment_actors": (list,),
        "rolling_update_percentage": _NUMBER,
        "max_surge_percent": _NUMBER,
    },
    f"{_DEPLOYMENT}.ray_actor_options": {
        "runtime_env": (dict,),
        "num_cpus": _NUMBER,
        "num_gpus": _NUMBER,
        "memory": _NUMBER,
        "resources": (dict,),
        "accelerator_type": (str,),
        "label_selector": (dict,),
        "fallback_strategy": (list,),
    },
    f"{_DEPLOYMENT}.autoscaling_config": {
        "min_replicas": (int,),
        "initial_replicas": (int,),
        "max_replicas": (int,),
        "target_ongoing_requests": _NUMBER,
        "metrics_interval_s": _NUMBER,
        "look_back_period_s": _NUMBER,
        "smoothing_factor": _NUMBER,
        "upscale_smoothing_factor": _NUMBER,
        "downscale_smoothing_factor": _NUMBER,
        "upscaling_factor": _NUMBER,
        "downscaling_factor": _NUMBER,
        "downscale_delay_s": _NUMBER,
        "downscale_to_zero_delay_s": _NUMBER,
        "upscale_delay_s": _NUMBER,
        "aggregation_function": (str,),
        "policy": None,
    },
}
# names that older examples use: Ray accepts and ignores them
RENAMED = {
    "target_num_ongoing_requests_per_replica": "target_ongoing_requests",
    "max_concurrent_queries": "max_ongoing_requests",
}
# (object, key) -> least and most; pydantic's PositiveInt and the like in serve/schema.py, and what
# a TCP port is
_MOST = 10**9
_BOUNDS = {
    ("http_options", "port"): (1, 65535),
    ("grpc_options", "port"): (1, 65535),
    (_APPLICATION, "port"): (1, 65535),
    (_DEPLOYMENT, "num_replicas"): (1, _MOST),
    (_DEPLOYMENT, "max_ongoing_requests"): (1, _MOST),
    (_DEPLOYMENT, "max_queued_requests"): (-1, _MOST),
}
_IMPORT_PATH = re.compile(r"^[A-Za-z_][\w.]*[:.][A-Za-z_]\w*$", re.ASCII)


def check(document: Any) -> list[Message]:
    """Return the faults of a Serve config, in the order of the file.

    Return [] for a valid one.
    """
    found: list[Message] = []
    if not isinstance(document, dict):
        return [message("ray.not_mapping", path="-")]
    _object("", "", document, found)
    applications = document.get("applications")
    if not applications:
        found.append(message("ray.no_applications"))
    for number, application in enumerate(array(applications)):
        _application(f"applications[{number}]", application, found)
    return found


def _object(place: str, path: str, value: Any, found: list[Message]) -> bool:
    """Check the keys of one object and their types.

    Return False when it is not an object.
    """
    if not isinstance(value, dict):
        found.append(message("ray.not_mapping", path=path or "-"))
        return False
    for key, inside in value.items():
        where = f"{path}.{key}" if path else str(key)
        if key in KEYS[place]:
            _value(place, key, where, inside, found)
        elif key in RENAMED:
            found.append(message("ray.renamed_key", path=where, key=RENAMED[key]))
        else:
            found.append(_unknown(where, key, place))
    return True


def _value(place: str, key: Any, where: str, value: Any, found: list[Message]) -> None:
    """Check the value of a known key."""
    types = KEYS[place][key]
    if types is None or value is None:
        return
    inner = f"{place}.{key}" if place else str(key)
    # a bool is an int to Python, not to Ray
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        names = " or ".join(kind.__name__ for kind in types)
        found.append(message("ray.wrong_type", path=where, found=repr(value)[:60], wanted=names))
    elif isinstance(value, int) and not _within(place, key, value):
        least, most = _BOUNDS[(place, key)]
        found.append(message("ray.out_of_range", path=where, found=value, least=least, most=most))
    elif isinstance(value, dict) and inner in KEYS:
        _object(inner, where, value, found)


def _within(place: str, key: Any, number: int) -> bool:
    least, most = _BOUNDS.get((place, key), (number, number))
    return least <= number <= most


def _unknown(where: str, key: Any, place: str) -> Message:
    import difflib

    near = difflib.get_close_matches(str(key), KEYS[place], 1)
    return message("ray.unknown_key", path=where, near=near[0] if near else ", ".join(KEYS[place]))


def _application(path: str, value: Any, found: list[Message]) -> None:
    if not _object(_APPLICATION, path, value, found):
        return
    prefix, imported = value.get("route_prefix"), value.get("import_path")
    if isinstance(prefix, str) and not prefix.startswith("/"):
        found.append(message("ray.route_prefix", path=f"{path}.route_prefix", found=prefix))
    if not (isinstance(imported, str) and _IMPORT_PATH.match(imported)):
        found.append(message("ray.import_path", path=f"{path}.import_path", found=str(imported)))
    deployments = value.get("deployments")
    for number, deployment in enumerate(array(deployments)):
        _deployment(f"{path}.deployments[{number}]", deployment, found)


def _in_order(scaling: Mapping[str, Any]) -> bool:
    """Return False for fewest, first and most replicas that contradict each other."""
    least, most = scaling.get("min_replicas", 1), scaling.get("max_replicas", 1)
    first = scaling.get("initial_replicas")
    if first is None:
        first = least
    if not all(isinstance(count, int) for count in (least, first, most)):
        # reported as wrong types
        return True
    return bool(0 <= least <= first <= most)


def _deployment(path: str, value: Any, found: list[Message]) -> None:
    if not _object(_DEPLOYMENT, path, value, found):
        return
    if not value.get("name"):
        found.append(message("ray.no_name", path=path))
    replicas, scaling = value.get("num_replicas"), value.get("autoscaling_config")
    if isinstance(replicas, str) and replicas != "auto":
        found.append(
            message(
                "ray.wrong_type",
                path=f"{path}.num_replicas",
                found=repr(replicas),
                wanted="int or auto",
            )
        )
    if isinstance(scaling, dict):
        if isinstance(replicas, int):
            found.append(message("ray.both_replicas", path=path))
        if not _in_order(scaling):
            found.append(message("ray.replica_order", path=f"{path}.autoscaling_config"))
    options = value.get("ray_actor_options")
    resources = mapping(options).get("resources")
    for name, amount in mapping(resources).items():
        if name == "HPU" and not (isinstance(amount, _NUMBER) and float(amount).is_integer()):
            found.append(
                message(
                    "ray.part_of_a_card",
                    path=f"{path}.ray_actor_options.resources.HPU",
                    found=amount,
                )
            )
