"""Import numpy, and add up the time of steps, without the threads of BLAS.

numpy gives a scalar product of more than 10,000 elements to BLAS, which divides it among a thread
for each core. The threads wait actively: a plan took 40 % more processor time, and the last digits
depended on the number of cores. To start them is a quarter of the time of the import on two cores.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_THREADS = "OPENBLAS_NUM_THREADS"


@cache
def import_numpy() -> None:
    """Import numpy without starting threads.

    Their number in the user's environment stays, and the engine does not inherit ours.
    """
    if _THREADS in os.environ:
        return
    os.environ[_THREADS] = "1"
    try:
        import numpy  # noqa: F401 - later imports find it
    finally:
        del os.environ[_THREADS]


def weighted_sum(weight: NDArray[np.float64], values: Any) -> float:
    """Return the sum of ``values``, each times its weight; the same on every machine."""
    return float((weight * values).sum())
