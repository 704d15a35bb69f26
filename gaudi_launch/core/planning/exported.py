"""Variables that the user exported for the engine.

Some belong to a service on every target, some are secrets and only named, and some have values that
the engine would misread.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.base.redact_values import is_secret_variable
from gaudi_launch.core.buckets.engine_booleans import boolean, is_true
from gaudi_launch.core.planning.option_table import variable_table
from gaudi_launch.core.planning.plan import Setting, variables_of
from gaudi_launch.core.planning.profiles import engine_reads

# for the engine and the libraries below it; the rest of an environment is not kept
_KEPT = re.compile(
    r"^(VLLM|HABANA|PT|HCCL|HF|HUGGINGFACE|MODELSCOPE|RAY|OMP|GLOO|ENABLE|INC|QUANT|TRANSFORMERS)_"
)
# common spellings of yes; some readers accept only "true"
_YES = ("1", "yes", "y", "on", "t")
# paths of programs and libraries on this machine; the Gaudi ones are those that the driver's
# profile scripts export (docs: Driver Installation)
_HERE = re.compile(
    r"^(PATH|PYTHONPATH|LD_LIBRARY_PATH|LD_PRELOAD|GC_KERNEL_PATH|DATA_LOADER_AEON_LIB_PATH|RDMA_CORE_(ROOT|LIB)"
    r"|LIBFABRIC_ROOT|FI_\w+|MPI_ROOT|OPAL_PREFIX|TMPDIR)$"
)
# the reader of a kind of value, and whether the engine accepts what it returns
_KINDS: Mapping[str, tuple[Callable[[str], float], Callable[[float], bool]]] = {
    "whole": (int, lambda number: True),
    "share": (float, lambda number: 0 <= number <= 1),
    "part": (float, lambda number: 0 <= number < 1),
}
_SKIP_WARMUP = "VLLM_SKIP_WARMUP"
# variables whose values the engine needs and that are never written to a file
SECRETS = ("VLLM_API_KEY", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "MODELSCOPE_API_TOKEN")


def local_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the machine's variables that an engine needs to start from any shell."""
    return {
        name: value
        for name, value in environment.items()
        if _HERE.match(name) and not is_secret_variable(name, value)
    }


def engine_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's variables for the engine, never secret ones."""
    return {
        name: value
        for name, value in environment.items()
        if _KEPT.match(name) and not is_secret_variable(name, value)
    }


def check_exported(
    environment: Mapping[str, str], engine: str, settings: Sequence[Setting] = ()
) -> list[Message]:
    """Return warnings for exported values that this engine misreads.

    ``engine`` is the name of its profile, which lists the accepted values, with the source; what
    ``settings`` replace is not read.

    Raises LaunchError (USAGE) for a value that would break it. An empty export counts as none.
    """
    warnings = []
    replaced = {
        each.name for each in settings if each.kind == "env" and each.source != "environment"
    }
    for name, kind in engine_reads(engine).items():
        value = environment.get(name, "").strip()
        if not value or name in replaced:
            continue
        if kind != "true":
            _check_value(name, value, kind)
        elif value.lower() in _YES:
            warnings.append(message("plan.exported_no", name=name, found=value, engine=engine))
    return warnings


_WRONG_VALUE = {
    "whole": "plan.exported_whole",
    "share": "plan.exported_share",
    "part": "plan.exported_part",
}


def _check_value(name: str, value: str, kind: str | list[str]) -> None:
    """Raise LaunchError (USAGE) for a value that is not of the kind, or in the list."""
    if isinstance(kind, str):
        if not _fits(value, kind):
            raise LaunchError(_WRONG_VALUE[kind], ExitCode.USAGE, name=name, found=value)
    elif value not in kind:
        words = ", ".join(kind)
        raise LaunchError("plan.exported_word", ExitCode.USAGE, name=name, found=value, known=words)


def inherited(
    environment: Mapping[str, str], table: str, settings: Sequence[Setting]
) -> list[Setting]:
    """Return a setting for each exported variable that only the engine reads.

    Those in ``settings`` are left out. ``table`` names the engine's `variable_table`. A variable
    that contains a secret reaches the engine unlisted. An empty export counts as none.
    """
    decided = {setting.name for setting in settings if setting.kind == "env"}
    found = []
    for name, place in variable_table(table).items():
        value = environment.get(name, "")
        if not value or name in decided or is_secret_variable(name, value):
            continue
        found.append(
            Setting(name, value, "env", "environment", message("plan.exported_read"), place)
        )
    return found


def overridden(settings: Sequence[Setting]) -> list[Message]:
    """Return a warning for each exported value that a rule replaced.

    The user's options override exported values without a warning.
    """
    warnings = []
    for setting in settings:
        if setting.kind != "env" or setting.source in ("flag", "environment"):
            continue
        lost = [beaten.value for beaten in setting.beaten if beaten.source == "environment"]
        used = setting.value or ""
        if not lost or lost[0].lower() == used.lower() or is_secret_variable(setting.name, lost[0]):
            continue
        why = setting.reason.render()
        warnings.append(
            message("plan.exported_lost", name=setting.name, found=lost[0], used=used, why=why)
        )
    return warnings


def skips_warmup(settings: Sequence[Setting], engine: str) -> bool:
    """Return True if the engine of this profile has no warm-up with these settings."""
    value = variables_of(settings).get(_SKIP_WARMUP, "")
    if engine_reads(engine).get(_SKIP_WARMUP) == "true":
        return is_true(value)
    return boolean(value)


def _fits(value: str, kind: str) -> bool:
    read, accepts = _KINDS[kind]
    try:
        return accepts(read(value))
    except ValueError:
        return False
