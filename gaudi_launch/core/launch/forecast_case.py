"""The case of a prediction: its model, machine and data types."""

from __future__ import annotations

import os
from dataclasses import dataclass

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.engines.upstream_tasks import CHAT, task_of
from gaudi_launch.core.host.accelerators import Accelerator, accelerators, identify
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.host.machine import named
from gaudi_launch.core.host.simulated import server_of
from gaudi_launch.core.launch.machine import load, own_accelerator
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.launch_options import SHORT_DTYPES, LaunchOptions
from gaudi_launch.core.planning.model_name import check_sizes

_NO_NOTES: tuple[Message, ...] = ()


@dataclass(frozen=True)
class ForecastCase:
    """A model of known sizes on a machine; ``machine`` None: this one."""

    model: Model
    machine: str | None
    host: Host
    notes: tuple[Message, ...] = ()


def read_case(options: LaunchOptions) -> ForecastCase:
    """Return the case of these options, for every predicted speed.

    Without a machine and a card the machine is a full server of the usual product. Raises
    LaunchError, (MODEL) for a model of unknown sizes or without generated text.
    """
    machine, notes = options.machine, _NO_NOTES
    host = load(machine)
    if not host.cards and not machine:
        product = accelerators()[own_accelerator()]
        machine = server_of(product.id)
        assert machine is not None, "the usual product has a server"
        note = message("recommend.assumed_machine", product=product.title, cards=product.cards)
        host, notes = load(machine), (note,)
    model = sized_model(options.model or "")
    if task_of(model) != CHAT:
        raise LaunchError("capacity.pooling", ExitCode.MODEL, model=model.path)
    return ForecastCase(model, machine and named(machine), host, notes)


def is_product(machine: str | None) -> bool:
    """Return whether ``--machine`` names a product.

    There may be several servers of it.
    """
    return machine is not None and named(machine) != machine


def sized_model(path: str) -> Model:
    """Return a model whose sizes are known.

    Raises LaunchError (MODEL) naming the unknown ones.
    """
    found = known_model(path, must_exist=False)
    check_sizes(found)
    return found


def find_product(text: str) -> Accelerator | None:
    """Return the Gaudi product of a name, that of this machine for "".

    Return None for another name.
    """
    return accelerators().get(text.lower() or own_accelerator()) or identify(text)


def read_dtype(given: str) -> str:
    """Return the data type of this argument, by the name that weights have.

    Raises LaunchError (USAGE) for one of unknown size.
    """
    found = SHORT_DTYPES.get(given.lower(), given)
    if found and found not in WEIGHT_BYTES:
        known = ", ".join([*SHORT_DTYPES, *WEIGHT_BYTES])
        raise LaunchError("fit.dtype", ExitCode.USAGE, found=given, known=known)
    return found


def data_types(model: Model, given: str, engine: Engine | None) -> list[str]:
    """Return the data types to try, the model's first.

    fp8 follows bfloat16, because it is the other way to fit. For an engine that dequantises the
    weights when it loads them, the only one is the wider type on the card.
    """
    named = read_dtype(given)
    if named:
        return [named]
    expanded = ""
    if engine is not None:
        expanded = engine.support(model, variables=os.environ).expanded_to
    if expanded:
        return [expanded]
    if model.quantization:
        return [model.quantization]
    return ["bfloat16", "fp8"]
