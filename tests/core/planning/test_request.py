"""A request without options decides nothing."""

from __future__ import annotations

from dataclasses import asdict

from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.option_table import GENERIC, UPSTREAM, option_table
from gaudi_launch.core.planning.request import Request

EMPTY_TEXTS = ("stamp", "files_dir", "libfabric_root", "unread_file", "secret_options")
EMPTY_LISTS = ("faults", "extra", "file_words", "overruled", "unmodelled")
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


def test_the_arguments_are_read_by_the_engines_table_with_those_of_the_file() -> None:
    table = option_table(UPSTREAM)
    words, file = ("-tp", "2", "--seed", "1"), ("--port", "80")
    request = Request("/m", extra=words, file_words=file, options=table)
    assert asdict(request.args) == asdict(engine_args(table=table, user=words, file=file))
    assert request.args.last("--tensor-parallel-size") == "2"
