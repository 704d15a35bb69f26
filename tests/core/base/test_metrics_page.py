"""Pages of metrics: whole ones, and those that end or are something else."""

from __future__ import annotations

from gaudi_launch.core.base.metrics_page import samples


def read(page: str) -> list[tuple[str, dict[str, str], float]]:
    return [(each.name, dict(each.labels), each.value) for each in samples(page)]


def test_a_page_that_is_cut_or_is_none_ends_without_an_error() -> None:
    for broken in ("b{m=", 'b{m="x", ="a"} 3', 'b{m="x"'):
        assert read(f"a 1\n{broken}") == [("a", {}, 1.0)]
    assert read("<html>no</html>") == []
