"""A request without options decides nothing."""

from __future__ import annotations

from dataclasses import asdict

from gaudi_launch.core.planning.engine_args import engine_args
from gaudi_launch.core.planning.option_table import UPSTREAM, option_table
from gaudi_launch.core.planning.request import Request


def test_the_arguments_are_read_by_the_engines_table_with_those_of_the_file() -> None:
    table = option_table(UPSTREAM)
    words, file = ("-tp", "2", "--seed", "1"), ("--port", "80")
    request = Request("/m", extra=words, file_words=file, options=table)
    assert asdict(request.args) == asdict(engine_args(table=table, user=words, file=file))
    assert request.args.last("--tensor-parallel-size") == "2"
