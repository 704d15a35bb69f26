"""The valid content of a Ray Serve config file.

Ray silently ignores unknown keys (seen with 2.60.0), so they are checked here. Keys and types: ray
2.60.0 (commit b7f4259e), python/ray/serve/schema.py and config.py; other traps were found by
running it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gaudi_launch.core.base.json_values import array, mapping
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.reader import beside
from gaudi_launch.core.engines.known_versions import newest
from gaudi_launch.core.engines.user_options import keyword_words, option_faults
from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.plan import EngineIdentity

# the engine whose keywords an application of Ray's LLM library has
_ENGINE = "vllm-gaudi"
_NUMBER = (int, float)
_APPLICATION = "applications[]"
_DEPLOYMENT = "applications[].deployments[]"

# "keys": the names of each object's keys by its place and their types; "any" accepts anything.
# "renamed": names that older examples use, which Ray accepts and ignores. "bounds": least and most
# of a key (pydantic's PositiveInt and the like in serve/schema.py, and what a TCP port is)
_DATA = beside(__file__)
_TYPES = {"str": str, "int": int, "float": float, "bool": bool, "dict": dict, "list": list}
# the types of each key by its place
KEYS: Mapping[str, Mapping[str, tuple[type, ...] | None]] = {
    place: {
        name: None if types == "any" else tuple(_TYPES[each] for each in types.split())
        for types, names in kinds.items()
        for name in names
    }
    for place, kinds in _DATA["keys"].items()
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
        elif key in _DATA["renamed"]:
            found.append(message("ray.renamed_key", path=where, key=_DATA["renamed"][key]))
        else:
            found.append(_unknown(where, key, place))
    return True


def _value(place: str, key: Any, where: str, value: Any, found: list[Message]) -> None:
    """Check the value of a known key."""
    types = KEYS[place][key]
    if types is None or value is None:
        return
    inner = f"{place}.{key}" if place else str(key)
    least, most = _DATA["bounds"].get(f"{place} {key}", (value, value))
    # a bool is an int to Python, not to Ray
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        names = " or ".join(kind.__name__ for kind in types)
        found.append(message("ray.wrong_type", path=where, found=repr(value)[:60], wanted=names))
    elif isinstance(value, int) and not least <= value <= most:
        found.append(message("ray.out_of_range", path=where, found=value, least=least, most=most))
    elif isinstance(value, dict) and inner in KEYS:
        _object(inner, where, value, found)


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
    for config in array(mapping(value.get("args")).get("llm_configs")):
        found += _engine_faults(mapping(mapping(config).get("engine_kwargs")))
    deployments = value.get("deployments")
    for number, deployment in enumerate(array(deployments)):
        _deployment(f"{path}.deployments[{number}]", deployment, found)


def _engine_faults(keywords: Mapping[str, Any]) -> list[Message]:
    """Return the faults of an engine's keywords, by the newest release with facts."""
    identity = EngineIdentity(_ENGINE, newest(_ENGINE).version, options=UPSTREAM)
    args = engine_args(table=option_table(UPSTREAM), user=keyword_words(keywords))
    return [fault.sentence for fault in option_faults(args, identity)]


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
