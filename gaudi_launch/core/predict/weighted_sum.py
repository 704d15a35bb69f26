"""The time of many steps, without the threads of a BLAS library.

numpy gives a scalar product of more than 10,000 elements to BLAS, which divides it among a thread
for each core. The threads wait actively: a plan took 40 % more processor time, and the last digits
depended on the number of cores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def weighted_sum(weight: NDArray[np.float64], values: Any) -> float:
    """Return the sum of ``values``, each times its weight; the same on every machine."""
    return float((weight * values).sum())
