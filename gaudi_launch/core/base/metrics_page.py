"""Parse pages in Prometheus' text format with prometheus_client's parser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.samples import Sample


def samples(page: str) -> Iterator[Sample]:
    """Yield the samples of a page, up to the first line that is not in the format.

    A sample has ``name``, ``labels`` and ``value`` (a finite float, also for counts): NaN and
    infinities of a broken engine are left out.
    """
    from prometheus_client.parser import text_string_to_metric_families

    try:
        for family in text_string_to_metric_families(page):
            yield from (each for each in family.samples if math.isfinite(each.value))
    except (ValueError, LookupError):
        # a truncated page, or an error page of a proxy; its parser does not check each index
        return
