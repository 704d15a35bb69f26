"""Options of a command made from the fields of a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pytest
import typer
import typer.main

from gaudi_launch.cli.record_options import LAUNCH_OPTIONS, RecordCommand, ReplicasCommand, record
from gaudi_launch.cli.table import COMMANDS, load_command
from gaudi_launch.core.base.fields import option_of, options_of, switch, text, value, values
from gaudi_launch.core.planning.launch_options import LaunchOptions
from gaudi_launch.extensions.kubernetes.options import KubernetesOptions


@dataclass(frozen=True)
class Address:
    port: str | None = value("-p", "--port", help="A port.", panel="Address", metavar="PORT")
    name: str = text("--name", help="A name.", panel="Address", metavar="NAME")
    labels: tuple[str, ...] = values("--label", help="A label.", panel="Address", metavar="KEY")
    force: bool = switch("--force", help="Continue.", panel="More")
    inner: str = "not an option"
    rest: tuple[str, ...] = values(help="What follows --.", metavar="[REST]")


Empty = record(Address())
app = typer.Typer(add_completion=False)


@app.command(cls=RecordCommand)
def show(
    as_json: bool = typer.Option(False, "--json"), address: Address = Empty
) -> tuple[bool, Address]:
    return as_json, address


def run(*words: str) -> Any:
    return typer.main.get_command(app)(args=list(words), prog_name="show", standalone_mode=False)


def test_nothing_given_is_the_empty_record() -> None:
    assert run() == (False, Address())


def test_each_option_fills_its_field() -> None:
    words = (
        "-p",
        "80",
        "--name",
        "x",
        "--label",
        "a",
        "--label",
        "b",
        "--force",
        "--json",
        "--",
        "-q",
        "z",
    )
    filled = Address(port="80", name="x", labels=("a", "b"), force=True, rest=("-q", "z"))
    assert run(*words) == (True, filled)


def test_one_call_leaves_nothing_for_the_next() -> None:
    run("--label", "a", "--force")
    assert run() == (False, Address())


def test_options_come_in_the_order_of_the_fields_after_the_commands_own() -> None:
    params = typer.main.get_command(app).params
    assert [param.name for param in params] == [
        "as_json",
        "port",
        "name",
        "labels",
        "force",
        "rest",
    ]


def commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "list_commands", lambda _: ())(None):
        yield from commands(command.get_command(None, inner))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_command_shows_a_record_as_an_option(name: str) -> None:
    """A command with a record in its signature and without ``cls=RecordCommand`` would."""
    for command in commands(load_command(name, COMMANDS[name][0])):
        kinds = {type(param.default) for param in command.params}
        assert kinds & {LaunchOptions, KubernetesOptions} == set(), command.name


def test_every_launch_option_is_on_the_command_line() -> None:
    assert [each.name for each in fields(LaunchOptions) if option_of(each) is None] == []
    cluster = [each.name for each in fields(KubernetesOptions) if option_of(each) is None]
    assert cluster == ["replicas", "max_replicas", "requests", "release", "secret_names", "gateway"]


def test_a_target_takes_the_launch_options_that_its_help_leaves_out() -> None:
    launch = {name for name, option in options_of(LaunchOptions).items() if option.names}
    render = load_command("render", COMMANDS["render"][0])
    for name, shown in (("docker", {"plan_file"}), ("kubernetes", {*ReplicasCommand.shown})):
        command = render.get_command(None, name)
        assert {param.name for param in command.params if param.hidden} == launch - shown
        assert LAUNCH_OPTIONS in command.help


@pytest.mark.parametrize("words", ["M", "-w M", "--all --weights M", "--weights=M --all"])
def test_a_model_is_the_first_argument_or_the_value_of_w(words: str) -> None:
    command = load_command("inspect", COMMANDS["inspect"][0])
    assert command.make_context("inspect", words.split()).params["model"] == "M"
