"""The values of one bucket dimension, as each engine spaces them (ladders).

Every function keeps the engine's arithmetic, operation by operation: the values are rounded up from
floats, so a different order of multiplications gives different buckets. Where the engine would
assert or never return, `BucketError` has its text. Sources: HabanaAI/vllm-hpu-extension branches
aice/v1.21.0, aice/v1.22.0 and deepseek_r1 (bucketing), vllm-project/vllm-gaudi@main
(vllm_gaudi/extension/bucketing). Python's ``**`` and the engines' numpy.float_power are the same
libm call on doubles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gaudi_launch.core.buckets.bucket_list import BucketError

_SKIP = "set VLLM_SKIP_WARMUP=true"
_LINEAR_ORDER = (
    f"Min. batch size cannot be greater than max. batch size. If you want to skip warmup, {_SKIP}"
)
_LIMIT_ORDER = f"bucket_min cannot be greater than bucket_max. If you want to skip warmup, {_SKIP}"


def hang(why: str) -> BucketError:
    """Return the error of an engine that would never return from its bucket code."""
    return BucketError(f"hang: {why}")


def broken(kind: str, text: str) -> BucketError:
    """Return the error of an engine that would raise ``kind`` with ``text``."""
    return BucketError(f"{kind}: {text}")


def nothing_left(batches: Sequence[float], queries: Sequence[float]) -> BucketError:
    """Return the forks' error for a ladder without values.

    It prints the configurations as lists.
    """
    return broken(
        "ValueError",
        (
            "No buckets could be captured with following config (min, step, max_warmup): "
            f"bs:{batches}, seq:{queries}"
        ),
    )


def log2_ceiling(value: float) -> int:
    """Return ceil(log2(value)).

    A value that is not positive gives the engines' "math domain error".
    """
    if value <= 0:
        raise broken("ValueError", "math domain error")
    return math.ceil(math.log2(value))


def linear(minimum: int, step: int, maximum: int) -> list[int]:
    """Return doublings from ``minimum`` to ``step``, then multiples of ``step``.

    The multiples go up to ``maximum``, which is a value only when it is a multiple of ``step``.
    1.21, 1.22 and deepseek_r1 before the padding limit, vllm-gaudi ``lin``.
    """
    if minimum > maximum:
        raise broken("AssertionError", _LINEAR_ORDER)
    if minimum <= 0 and minimum < step:
        raise hang(f"a bucket minimum of {minimum} never reaches the step {step} by doubling")
    ramp = []
    value = minimum
    while value < step and value <= maximum:
        ramp.append(value)
        value *= 2
    return ramp + [value for value in range(step, maximum + 1, step) if value >= minimum]


def linear_from_zero(minimum: int, step: int, maximum: int) -> list[int]:
    """Return `linear`, where a minimum of 0 means: start at ``step`` and add 0.

    vllm-gaudi ``lin``.
    """
    if minimum != 0:
        return linear(minimum, step, maximum)
    if maximum < 0:
        raise broken("AssertionError", _LINEAR_ORDER)
    if maximum == 0:
        return [0]
    # The engine checks minimum <= maximum before it raises the minimum to the step.
    return [0] + [value for value in range(step, maximum + 1, step) if value >= step]


def limited(minimum: float, step: float, maximum: float, limit: float) -> list[int]:
    """Return doublings to ``step``, then multiples with padding below ``limit``.

    ``limit`` is a fraction. ``maximum`` is always the last value. 1.22 and deepseek_r1 with the
    padding limit (extension pull 371).
    """
    if minimum > maximum:
        raise broken("AssertionError", _LIMIT_ORDER)
    values = [minimum]
    current = minimum
    while current <= maximum:
        last = values[-1]
        if current <= step:
            following = last * 2
            if following <= current:
                raise hang(f"a bucket minimum of {minimum} never grows by doubling")
            if following <= maximum:
                values.append(following)
        else:
            following = current + step
            if 1 - (last / (following - 1)) > limit and current != last:
                values.append(current)
            if following == current or following < 1:
                raise hang(f"a bucket step of {step} never reaches the maximum {maximum}")
        current = following
    if values[-1] != maximum:
        values.append(maximum)
    # The engine reads "128.0" as a float and pads to it; as a shape it is the same number.
    return [int(value) if value == int(value) else value for value in values]  # type: ignore[misc]


def padded(minimum: int, step: int, maximum: int, pad_max: int, pad_percent: int) -> list[int]:
    """Return `limited` with a percentage and an absolute bound on padding.

    vllm-gaudi ``pad``. ``pad_max`` 0 means ``maximum``; multiples of ``pad_max`` are always kept.
    """
    if pad_max == 0:
        pad_max = maximum
    if minimum > maximum:
        raise broken("AssertionError", _LIMIT_ORDER)
    if step <= 0:
        raise broken("AssertionError", f"bucket_step must be positive, got: ({step})")
    if not 0 <= pad_percent <= 50:
        raise broken(
            "AssertionError",
            f"pad_percent must be between 0 and 50 percentage points, got: ({pad_percent})",
        )
    values = [minimum]
    current = minimum
    while current <= maximum:
        last = values[-1]
        if current <= step:
            following = last * 2 or 1
            if following <= current:
                raise hang(f"a bucket minimum of {minimum} never grows by doubling")
            if following <= maximum:
                values.append(following)
        else:
            following = current + step
            padding = following - last - 1
            keep = (
                padding / following > pad_percent / 100.0
                or padding > pad_max
                or current % pad_max == 0
            )
            if keep and current != last:
                values.append(current)
        current = following
    if values[-1] != maximum:
        values.append(maximum)
    return values


def spaced(
    minimum: int,
    step: int,
    maximum: int,
    number: int,
    *,
    last_exact: bool,
    long_context: bool = False,
) -> list[int]:
    """Return ``number`` values at equal ratios, each rounded up to ``step``.

    A value already taken is replaced by the nearest free one.

    ``last_exact`` (contiguous paged attention) makes the last one ``maximum`` itself.
    ``long_context`` (1.22, prompts of models of 8192 tokens and more) spaces only the lower half by
    ratio and the upper half evenly. 1.21 and 1.22 exponential.
    """
    if number <= 0:
        raise broken("AssertionError", "num_buckets must be a positive integer")
    if number == 1:
        return [maximum]
    # Ties between two free neighbours are broken by the order of a set, in the engine and so here.
    free = set(range(minimum, maximum + 1, step))
    values: set[int] = set()
    by_ratio, knee = number, float(maximum)
    if long_context:
        by_ratio, knee = math.floor(number / 2), maximum / number
    for i in range(by_ratio):
        exact = minimum * (knee / minimum) ** ((1.0 / float(by_ratio - 1)) * i)
        if i == number - 1 and last_exact:
            value = maximum
        else:
            value = math.ceil(exact / step) * step
        if value in values:
            unused = free.difference(values)
            if not unused:
                break
            value = min(unused, key=lambda value: abs(value - exact))
        values.add(value)
    if long_context:
        even = number - by_ratio
        stride = (maximum - knee) / even
        for i in range(1, even + 1):
            exact = knee + i * stride
            value = math.ceil(exact / step) * step
            if i == number and last_exact:
                value = maximum
            values.add(value)
    return sorted(values)


def spaced_once(
    minimum: int, step: int, maximum: int, number: int, *, last_exact: bool, form: str = "exact"
) -> list[int]:
    """Return ``number`` values at equal ratios, rounded up to ``step``, once each.

    vllm-gaudi ``exp``. A minimum of 0 or 1 is kept as a separate value while the ratios start at
    ``step``; the largest value is cut to ``maximum``. ``form``: a `LadderRules.ladder`; the older
    ones cut nothing, and ``plain`` keeps a minimum of 0 only.
    """
    if number <= 0:
        raise broken("AssertionError", "num_buckets must be a positive integer")
    if number == 1:
        return [maximum]
    start, values = minimum, set()
    if minimum == 0 or (minimum == 1 and form != "plain"):
        start, values = step, {minimum}
    for i in range(number):
        exact = start * (maximum / start) ** ((1.0 / float(number - 1)) * i)
        value = math.ceil(exact / step) * step
        if i == number - 1 and last_exact:
            value = maximum
        values.add(value)
    ladder = sorted(values)
    if form == "exact":
        ladder[-1] = min(ladder[-1], maximum)
    return sorted(ladder)


def fallback(value: int, step: int) -> int:
    """Return the size that an engine adds for a value above its buckets.

    Gaps grow with the cube root of the value. 1.22 (``calc_fallback_value`` in bucketing/common.py)
    and vllm-gaudi.
    """
    if value <= 1:
        return value
    gap = math.ceil(math.pow(value, 1 / 3)) * step
    return math.ceil(value / gap) * gap


def by_step(value: int, config: Sequence[int]) -> int:
    """Return the size that ``linear`` of 1.21 and deepseek_r1 gives a value.

    It follows from (minimum, step) and is never clipped at a maximum.
    """
    minimum, step = config[0], config[1]
    if value <= minimum:
        return minimum
    if minimum <= 0:
        raise hang(f"a bucket minimum of {minimum} never reaches {value} by doubling")
    power = minimum
    while value > power:
        power *= 2
    if power <= step:
        return power
    return (value + step - 1) // step * step
