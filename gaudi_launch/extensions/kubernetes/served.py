"""A plan as one model of a cluster, with names that Kubernetes accepts. Pure."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from itertools import chain, count

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.planning.container import Container
from gaudi_launch.core.planning.engine_args import EngineArgs, split_argv
from gaudi_launch.core.planning.plan import Api, Plan
from gaudi_launch.extensions.kubernetes.chart_values import Name
from gaudi_launch.extensions.kubernetes.objects.needs import PodResources
from gaudi_launch.extensions.kubernetes.objects.pod import RECIPE_VARIABLE
from gaudi_launch.extensions.kubernetes.schema_check import NAME
from gaudi_launch.extensions.kubernetes.target import ServedModel

# Kubernetes allows 63; controllers append suffixes (KubeRay: 47 for a RayService, its validation)
LONGEST = 45
# of a RayService: KubeRay appends -serve-svc and cuts what is longer than 50 (utils.CheckName)
LONGEST_RAY = 40
# maximum length of a chart's release, so that our suffixes have room
LONGEST_RELEASE = 33
_METRICS: Mapping[Api, tuple[str, str]] = {
    "openai": ("vllm:num_requests_running", "vllm:num_requests_waiting"),
    "generate": ("tgi_batch_current_size", "tgi_queue_size"),
}
_LIMIT_OPTIONS = ("--max-num-seqs", "--max-concurrent-requests")
# opea-project/GenAIInfra@9200b371: target of the vLLM chart on an accelerator
_REQUESTS = 100


def dns_name(text: str, longest: int = LONGEST) -> str:
    """Return any text as a DNS label; an empty result becomes ``model``.

    >>> dns_name("Qwen/Qwen2.5-72B_Instruct"), dns_name("模型")
    ('qwen-qwen2-5-72b-instruct', 'model')
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    return "-".join(words)[:longest].strip("-") or "model"


def release_name(given: str, model: str) -> str:
    """Return the release's name: the user's, else one from the model's name.

    Raises LaunchError (USAGE) for an invalid one.
    """
    if not given:
        # a Service's name must begin with a letter
        return re.sub(
            r"^(?=[0-9])", "m-", dns_name(model.rstrip("/").rpartition("/")[2], LONGEST_RELEASE - 2)
        )
    if not NAME.fullmatch(given) or given[0].isdigit() or len(given) > LONGEST_RELEASE:
        raise LaunchError("kubernetes.name", ExitCode.USAGE, found=given, longest=LONGEST_RELEASE)
    return given


def keys_of(names: Iterable[str]) -> list[str]:
    """Return a different key for each model: its name, numbered where necessary."""
    found: list[str] = []
    for name in names:
        key = dns_name(name.rstrip("/").rpartition("/")[2], 24)
        numbered = (f"{key[:21]}-{number}" for number in count(2))
        found.append(next(each for each in chain([key], numbered) if each not in found))
    return found


def served_of(
    plan: Plan, container: Container, needs: PodResources, key: str, name: Name
) -> ServedModel:
    """Return a plan as a model whose objects have this name."""
    mib = container.env.get(RECIPE_VARIABLE, "").rpartition(",")[2]
    recipe_mib, recipe_key = 0, ""
    if mib.isdigit():
        # graphs of another image are not used
        graphs = f"{plan.cache.get('key', '')} {container.image}"
        recipe_mib, recipe_key = int(mib), hashlib.sha256(graphs.encode()).hexdigest()[:16]
    return ServedModel(
        key=key,
        name=name,
        model=str(plan.model["path"]),
        container=container,
        needs=needs,
        requests=_requests(split_argv(container.argv, table=plan.args.table)),
        recipe_mib=recipe_mib,
        recipe_key=recipe_key,
        options=plan.engine.options,
        ray_amount=needs.cards or 1,
        metrics=_METRICS[plan.engine.api],
    )


def _requests(args: EngineArgs) -> int:
    for name in _LIMIT_OPTIONS:
        value = args.last(name) or ""
        if value.isascii() and value.isdigit():
            return int(value)
    return _REQUESTS
