"""Read a model on the hub without its weights: config.json, safetensors headers."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from gaudi_launch import http_client, mirrors
from gaudi_launch.errors import ExitCode, LaunchError
from gaudi_launch.models.config import counted_with, model_from_config, read_config
from gaudi_launch.models.hub.network import reason_of
from gaudi_launch.models.model import Model
from gaudi_launch.models.weights import count_parameters, count_unloaded
from gaudi_launch.redact import redact_text

_T = TypeVar("_T")


def read_remote(hub_id: str, revision: str | None = None) -> Model:
    """Return the facts of ``owner/name`` from the hub that HF_ENDPOINT names.

    huggingface_hub's rules for tokens apply. Raises LaunchError (MODEL): no such model, gated,
    offline, or another answer of the hub.
    """
    # the library reads its variables when it is imported
    os.environ.update(mirrors.read().hub_variables())
    import huggingface_hub

    _reach(hub_id)
    file = _asked(
        hub_id, lambda: huggingface_hub.hf_hub_download(hub_id, "config.json", revision=revision)
    )
    document = read_config(Path(file).parent)
    weights = _weights(hub_id, revision, *counted_with(document))
    return replace(model_from_config(hub_id, document, weights), source="hub")


def _weights(hub_id: str, revision: str | None, bits: int, layers: int | None) -> dict[str, Any]:
    """Return parameters and bytes by the headers alone, counted as those of a folder.

    The result is empty where the model has no safetensors.
    """
    import huggingface_hub
    from huggingface_hub.errors import NotASafetensorsRepoError, SafetensorsParsingError

    try:
        found = _asked(
            hub_id, lambda: huggingface_hub.get_safetensors_metadata(hub_id, revision=revision)
        )
    except (NotASafetensorsRepoError, SafetensorsParsingError):
        return {}
    header: dict[str, dict[str, Any]] = {
        name: {"dtype": info.dtype, "shape": info.shape, "data_offsets": info.data_offsets}
        for file in found.files_metadata.values()
        for name, info in file.tensors.items()
    }
    sizes = (end - begin for begin, end in (entry["data_offsets"] for entry in header.values()))
    return {
        "parameters": count_parameters(header, bits) or None,
        "weight_bytes": sum(sizes) or None,
        "unloaded_bytes": count_unloaded(header, layers) if layers else 0,
    }


def _asked(hub_id: str, ask: Callable[[], _T]) -> _T:
    """Send one request to the hub; turn its many errors into four sentences."""
    from huggingface_hub import errors

    endpoint = _shown_endpoint()
    try:
        return ask()
    except errors.GatedRepoError:
        raise LaunchError("models.gated", ExitCode.MODEL, model=hub_id, hub=endpoint) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise LaunchError("models.not_on_hub", ExitCode.MODEL, model=hub_id, hub=endpoint) from None
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            if isinstance(
                error.__cause__, errors.HfHubHTTPError
            ):  # it hides any odd answer behind "no network"
                raise _odd_answer(hub_id, error.__cause__) from None
            raise _offline(hub_id, reason_of(error)) from None
        raise LaunchError("models.no_config", ExitCode.MODEL, path=hub_id) from None
    except errors.OfflineModeIsEnabled:
        raise _offline(hub_id, "HF_HUB_OFFLINE") from None
    except errors.HfHubHTTPError as error:
        raise _odd_answer(hub_id, error) from None
    except errors.HFValidationError:
        raise LaunchError("models.no_folder", ExitCode.MODEL, path=hub_id) from None
    except Exception as error:
        # some releases of huggingface_hub speak through requests, some through httpx
        if not isinstance(error, OSError) and type(error).__module__.partition(".")[0] not in (
            "httpx",
            "httpcore",
        ):
            raise
        raise _offline(hub_id, reason_of(error)) from None


def _offline(hub_id: str, why: str) -> LaunchError:
    return LaunchError(
        "models.offline", ExitCode.MODEL, model=hub_id, hub=_shown_endpoint(), why=why
    )


def _odd_answer(hub_id: str, error: Exception) -> LaunchError:
    why = redact_text(" ".join(str(error).split()))[:300]
    return LaunchError(
        "models.hub_answer", ExitCode.MODEL, model=hub_id, hub=_shown_endpoint(), why=why
    )


def _endpoint() -> str:
    return (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")


def _shown_endpoint() -> str:
    return redact_text(_endpoint())


def _reach(hub_id: str) -> None:
    """Check that the hub can be reached, with one short request.

    The hub's own client would retry for half a minute and log each attempt.
    """
    import requests

    try:
        http_client.head(_endpoint(), seconds=10)
    except requests.RequestException as error:
        raise _offline(hub_id, reason_of(error)) from None
