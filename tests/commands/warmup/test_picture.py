"""Pictures that other programs can read."""

from __future__ import annotations

from gaudi_launch.commands.warmup.picture import heat, picture
from gaudi_launch.core.buckets.optimiser.bucket_planner import plan
from gaudi_launch.core.predict.step_time import ONE_CARD_8B
from tests.support.plots import needs_matplotlib, size_of, texts
from tests.support.traces import limits


def test_heat_counts_everything() -> None:
    made = plan(limits(), None)
    pairs = [(b[0], b[2]) for b in made.buckets.decode]
    grid = heat(pairs, made.aim.expectation.shapes.decode, ONE_CARD_8B.decode, 10, 40)
    assert sum(map(sum, grid.buckets)) == len(pairs)
    assert abs(sum(map(sum, grid.share)) - 1) < 1e-9
    assert (grid.batches[-1], grid.sizes[-1]) == (64, 2000)


@needs_matplotlib
def test_the_picture_names_its_axes_and_shows_every_bucket() -> None:
    made = plan(limits(), None)
    drawn = picture(made.buckets, made.aim.expectation.shapes, ONE_CARD_8B, "a < b, $x$", ".svg")
    words = texts(drawn)
    prompts = len([bucket for bucket in made.buckets.prompt if bucket[2] == 0])
    expected = {
        "a < b, $x$",
        f"Prefill: {prompts} buckets",
        f"Decode: {len(made.buckets.decode)} buckets",
        "prompt length (tokens)",
        "KV cache blocks (128 tokens each)",
        "batch size",
        "share of step time (%)",
        "bucket",
    }
    assert expected - set(words) == set()


@needs_matplotlib
def test_the_png_is_large_enough_for_a_report() -> None:
    made = plan(limits(), None)
    drawn = picture(made.buckets, made.aim.expectation.shapes, ONE_CARD_8B, "t", ".png")
    assert size_of(drawn) == (1800, 750)
