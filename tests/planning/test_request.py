"""A request without options decides nothing."""

from __future__ import annotations

from gaudi_launch.planning.option_table import GENERIC
from gaudi_launch.planning.request import Request

EMPTY_TEXTS = ("stamp", "files_dir", "libfabric_root", "unread_file", "secret_options")
EMPTY_LISTS = ("open_ranges", "faults", "extra", "file_words", "overruled", "unmodelled")
OFF = ("skip_warmup", "profile", "no_zero_padding", "no_fused_sdpa", "inc_fp8", "force")


def test_an_option_that_is_not_given_has_no_value() -> None:
    fields = {name: value for name, value in vars(Request("/m")).items() if value is not None}
    assert fields == {
        "model": "/m",
        "engine": "auto",
        "tuning": "auto",
        "environment": {},
        "options": GENERIC,
        **dict.fromkeys(EMPTY_TEXTS, ""),
        **dict.fromkeys(EMPTY_LISTS, ()),
        **dict.fromkeys(OFF, False),
    }
