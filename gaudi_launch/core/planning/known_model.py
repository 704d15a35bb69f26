"""A model from its folder, the hub's local cache, a profile or the hub."""

from __future__ import annotations

from dataclasses import replace

from gaudi_launch.core.base.errors import LaunchError
from gaudi_launch.core.models.config import (
    looks_like_hub_id,
    model_from_config,
    name_of,
    named_model,
    read_config,
    read_model,
    refuse_address,
)
from gaudi_launch.core.models.hub.local import find_config, find_local
from gaudi_launch.core.models.hub.remote import read_remote
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.profiles import listed_facts, with_parameters


def known_model(path: str, must_exist: bool = True, revision: str = "") -> Model:
    """Return a model from the best source at hand.

    That is its folder, a hub's local cache, a profile that lists it, the hub, or else its name.
    ``must_exist``: a path must be a folder, and a hub ID known to one of them. Raises LaunchError
    (MODEL) otherwise, and for a folder that cannot be read; (USAGE) for the address of a page.
    """
    refuse_address(path)
    is_id = looks_like_hub_id(path)
    found = _in_local_cache(path, revision) if is_id else read_model(path, must_exist)
    if found.source == "name" and not revision:
        found = listed_facts(found)
    if found.source == "name" and is_id:
        try:
            found = read_remote(path, revision)
        except LaunchError as error:
            if must_exist:
                raise
            found = named_model(path, error.text)
    return with_parameters(found)


def _in_local_cache(repo: str, revision: str) -> Model:
    """Return a model by the folders of the hubs' libraries, else by its name.

    The weights of a download that is not complete are not counted.
    """
    folder = find_local(repo, revision)
    if folder is not None:
        return replace(read_model(str(folder)), path=repo, name=name_of(repo))
    folder = find_config(repo, revision)
    if folder is not None:
        return model_from_config(repo, read_config(folder))
    return named_model(repo)
