"""Missing facts of a model: its sizes or its files. Similar names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.optional import mapped
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import kv_bytes_per_token, weight_bytes
from gaudi_launch.core.models.weights import TOKENIZER, has_tokenizer, has_weights
from gaudi_launch.core.planning.effects import json_object, speculative_options
from gaudi_launch.core.planning.engine_args import EngineArgs
from gaudi_launch.core.planning.profiles import listed_id, profiles
from gaudi_launch.core.planning.request import Request

_MOST = 2  # number of names in a warning
_MOST_FILES = 5
INCOMPLETE = "serve.model_incomplete"
# options whose folder an engine reads at its start, with a file that it needs there
_FOLDERS = {
    "--tokenizer": TOKENIZER,
    "--hf-config-path": "config.json",
    "--speculative-model": "config.json",
}
# a misspelled long name is above, another size of the same family mostly below (assumed)
_NEAR = 0.8


def name_warning(asked: str, model: Model) -> tuple[Message, ...]:
    """Return the warnings for a model whose files were not read.

    There are none for a known hub ID. ``asked``: the user's value, ``model``: the known facts.
    """
    if model.source not in ("name", "profile") or asked in ("", "demo"):
        return ()
    hub_ids = tuple(name for profile in profiles() for name in profile.models)
    if asked in hub_ids:
        return ()
    near = near_folders(Path(asked))
    listed = listed_id(asked)
    if listed is not None:
        profile, hub_id = listed
        found = [message("plan.name_listed", model=asked, hub_id=hub_id, profile=profile.name)]
    else:
        found = [message("plan.name_sizeless", model=asked)]
        near = nearest_names(asked, hub_ids, near)
    if model.unread is not None:
        found.append(model.unread)
    if near:
        found.append(message("plan.name_near", nearest=", ".join(near)))
    return tuple(found)


def check_sizes(model: Model, *, weights: bool = True) -> None:
    """Raise LaunchError (MODEL) for a model whose sizes are unknown, naming those.

    ``weights`` False: also without the size of its weights.
    """
    if model.is_only_a_name:
        raise LaunchError(
            "models.sizes_unknown",
            ExitCode.MODEL,
            model=model.path,
            detail=mapped(Message.render, model.unread),
        )
    if kv_bytes_per_token(model) is None:
        raise LaunchError("fit.no_kv_facts", ExitCode.MODEL, model=model.path)
    if weights and weight_bytes(model) is None:
        raise LaunchError("fit.no_weights", ExitCode.MODEL, model=model.path)


def check_files(model: Model, request: Request) -> None:
    """Raise LaunchError (MODEL) for folders that lack files or do not fit.

    A tokenizer of another place, or none, may be chosen by an option of the engine.
    """
    missing = model.files_missing
    if request.args.given("--tokenizer") or request.args.has("--skip-tokenizer-init"):
        missing = tuple(name for name in missing if name != TOKENIZER)
    if missing and not request.force:
        more = " ..." if len(missing) > _MOST_FILES else ""
        raise LaunchError(
            INCOMPLETE,
            ExitCode.MODEL,
            path=model.path,
            count=len(missing),
            files=", ".join(missing[:_MOST_FILES]) + more,
        )
    if request.force or model.source != "config.json":
        # the folders of another machine are there
        return
    if None not in (model.vocab_rows, model.vocab_size) and model.vocab_rows != model.vocab_size:
        raise LaunchError(
            "serve.vocab_differs",
            ExitCode.MODEL,
            path=model.path,
            found=model.vocab_size,
            rows=model.vocab_rows,
        )
    for option, path, needed in _option_folders(request.args):
        if not looks_like_hub_id(path) and not _has(Path(path).expanduser(), needed):
            raise LaunchError(
                "serve.option_folder", ExitCode.MODEL, option=option, path=path, needed=needed
            )


def _option_folders(args: EngineArgs) -> Iterator[tuple[str, str, str]]:
    """Yield options with their folder and the file that the engine reads there.

    Sources: vllm-project/vllm 0.26.0:vllm/tokenizers/hf.py, vllm/transformers_utils/config.py,
    vllm/lora/peft_helper.py from_local_dir, vllm/entrypoints/chat_utils.py load_chat_template;
    HabanaAI/vllm-fork@016b6bd20:vllm/config.py SpeculativeConfig;
    huggingface/text-generation-inference@v3.3.5:backends/gaudi/server/text_generation_server/
    utils/adapter.py parse_lora_adapters.
    """
    named = {"--speculative-config": speculative_options(args).get("model")}
    for option, path in (named | {each: args.last(each) for each in _FOLDERS}).items():
        if path and str(path)[0] != "[":
            yield option, str(path), _FOLDERS.get(option, "config.json")
    for option, path in adapter_folders(args):
        yield option, path, "adapter_config.json"


def adapter_folders(args: EngineArgs) -> list[tuple[str, str]]:
    """Return option and folder of each adapter: ``NAME=FOLDER``, or a JSON object."""
    found = []
    for option in ("--lora-modules", "--prompt-adapters"):
        words = [word for argument in args.given(option) for word in argument.values]
        found += [(option, json_object(each).get("path", each.partition("=")[2])) for each in words]
    listed = (args.last("--lora-adapters") or "").split(",")
    found += [("--lora-adapters", each.partition("=")[2].partition("@")[0]) for each in listed]
    return [(option, str(path)) for option, path in found if path]


def _has(folder: Path, needed: str) -> bool:
    """Return True if a folder has this file, or another tokenizer for tokenizer.json."""
    names = [each.name for each in _entries(folder)]
    return needed in names or (needed == TOKENIZER and has_tokenizer(names))


def lacks_weights(model: Model, request: Request) -> bool:
    """Return True for a folder without weights, unless forced or loaded otherwise."""
    folder = Path(model.path).expanduser()
    if request.force or request.args.has("--load-format") or not folder.is_dir():
        return False
    return not has_weights(folder)


def nearest_names(
    asked: str, hub_ids: Sequence[str], folders: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return folders, then hub IDs that are similar to ``asked``, the nearest first.

    ``folders`` are the existing ones whose path is near. A path is compared with hub IDs by its
    last part.
    """
    is_path = asked.count("/") != 1 or asked.startswith(("/", ".", "~"))

    def key(name: str) -> str:
        if is_path:
            name = name.rstrip("/").rsplit("/", 1)[-1]
        return name.lower()

    by_key: dict[str, list[str]] = {}
    for each in hub_ids:
        by_key.setdefault(key(each), []).append(each)
    wanted = key(asked)
    found = list(folders)
    near = [wanted]
    if wanted not in by_key:
        near = _close_to(wanted, list(by_key))
    for each in near:
        found += by_key[each]
    return tuple(found[:_MOST])


def near_folders(path: Path) -> tuple[str, ...]:
    """Return the existing folders that differ from a missing path in one part.

    That part may be misspelled.
    """
    path = path.expanduser()
    parts = path.parts
    parent = Path()
    for at, part in enumerate(parts):
        if (parent / part).is_dir():
            parent /= part
            continue
        rest = parts[at + 1 :]
        beside = [each.name for each in _entries(parent) if each.is_dir()]
        candidates = [parent.joinpath(name, *rest) for name in _close_to(part, beside)]
        return tuple(str(each) for each in candidates if each.is_dir())
    return ()


def _close_to(word: str, possibilities: Sequence[str]) -> list[str]:
    """Return the possibilities that are similar to ``word``, the nearest first."""
    return get_close_matches(word, possibilities, n=_MOST, cutoff=_NEAR)


def _entries(folder: Path) -> list[Path]:
    """Return what is in a folder, nothing where it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def request_name(model: str) -> str:
    """Return a name for requests that is made of a folder or hub ID.

    >>> request_name("Qwen/Qwen3-8B")
    'qwen3-8b'
    """
    last = model.rstrip("/").rpartition("/")[2].lower()
    return re.sub(r"[^a-z0-9._-]+", "-", last).strip("-._") or "model"
