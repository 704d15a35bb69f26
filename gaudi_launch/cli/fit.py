"""``gaudi-launch fit``: on how many cards does a model fit, with which context and concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from gaudi_launch.models.fit import FitRow, FitTable
    from gaudi_launch.models.records import Model
    from gaudi_launch.planning.engine import Engine
    from gaudi_launch.planning.request import Request

app = typer.Typer(context_settings={"help_option_names": ["-h", "--help"]})

ENGINES = ("vllm-fork@1.21", "vllm-fork@1.22", "deepseek_r1", "vllm-gaudi", "tgi", "tgi@3.2.3")


@app.command()
def fit(
    model: str = typer.Argument(..., metavar="MODEL", help="A folder, a hub id, or a model that has a profile."),
    cards: str = typer.Option("", "-n", "--cards", metavar="LIST", help="Numbers of cards: 1,2,4,8."),
    accelerator: str = typer.Option(
        "",
        "--accelerator",
        metavar="NAME",
        help="gaudi2, gaudi3, inf2.48xlarge... (default: this machine).",
    ),
    length: str = typer.Option("", "-l", "--max-model-len", metavar="N", help="Longest input plus output."),
    requests: str = typer.Option("", "-b", "--max-num-seqs", metavar="N", help="Requests at once."),
    inputs: str = typer.Option("", "-i", "--input", metavar="RANGE", help="Input tokens: least,most."),
    outputs: str = typer.Option("", "-o", "--output", metavar="RANGE", help="Output tokens: least,most."),
    dtype: str = typer.Option("", "-d", "--dtype", metavar="TYPE", help="Only this data type."),
    engine: str = typer.Option("", "--engine", metavar="ENGINE", help=", ".join(ENGINES) + "."),
    as_json: bool = typer.Option(False, "--json", help="One JSON object on stdout."),
) -> None:
    """For each number of cards: weights, KV cache, blocks, longest context, concurrency; and the smallest number.

    The arithmetic is the engine's own; what it measures on a card (activations) is estimated. That nothing fits
    is an answer, no failure: the exit status stays 0, with --json smallest_n is null.
    """
    from gaudi_launch import profiles
    from gaudi_launch.host.accelerators import accelerators, instances
    from gaudi_launch.messages import text
    from gaudi_launch.models import sizing
    from gaudi_launch.models.fit import fit_each, fit_weights_only
    from gaudi_launch.planning.fitting import divided, limits_of

    check_dtype(dtype)
    numbers = _numbers(cards)
    name = _accelerator(accelerator)
    facts = known_model(model)
    profile = profiles.match(facts)
    dtypes = data_types(facts, dtype)
    chosen = engine_for(engine, facts, name)
    request = request_for(facts, length, requests, inputs, outputs)
    if name in instances():
        instance = instances()[name]
        table = fit_weights_only(facts, instance.cores, numbers, dtypes, instance.core_gb)
        title = {"id": "fit.title_neuron", "cores": instance.cores}
        assumed: list[str] = []
    else:
        product = accelerators()[name]
        usable = (product.memory_usable_mib or product.memory_total_mib) << 20
        allowed = numbers or [n for n in (1, 2, 4, 8) if n <= product.cards]
        table = fit_each(
            facts, usable, allowed, dtypes, lambda n, kind: divided(chosen, request, product, facts, n, kind)
        )
        title = {"id": "fit.title", "memory": f"{usable / sizing.GIB:.1f}"}
        memory = [f"{name}.memory"] if "assumed" in product.sources.get("memory", "") else []
        measures = sizing.rules_of(chosen.identity.name, chosen.identity.version).profile_run
        assumed = [*(["activations"] if measures else []), *memory]
    if facts.source == "name" and profile is not None:
        assumed += [f"{profile.name}.{part}" for part in profile.assumed if part == "architecture"]
    if as_json:
        counted = None if name in instances() else chosen
        _emit(facts, name, counted, limits_of(chosen, request, facts).max_model_len, table, assumed)
    else:
        _show(facts, name, title, table, dtypes, of_asked=numbers is not None)
        if facts.source == "name" and profile is not None:
            typer.echo(text("fit.from_profile", profile=profile.name))
        if assumed:
            typer.echo(text("fit.assumed", what=", ".join(assumed)))


def check_dtype(found: str) -> None:
    """Raises LaunchError (USAGE) for a data type that nobody knows the size of."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.sizing import WEIGHT_BYTES

    if found and found not in WEIGHT_BYTES:
        raise LaunchError("fit.dtype", ExitCode.USAGE, found=found, known=", ".join(WEIGHT_BYTES))


def _numbers(text: str) -> list[int] | None:
    from gaudi_launch.planning.asked import number

    return [number("-n", word, 1, 64) for word in text.split(",")] if text else None


def _accelerator(asked: str) -> str:
    """The product or instance of this word: our own, hl-smi's name (HL-225), or ``inf2`` for the largest instance.
    Raises LaunchError (USAGE)."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.host.accelerators import accelerators, identify, instances

    if not asked:
        return own_accelerator()
    name = asked.lower()
    if name in accelerators() or name in instances():
        return name
    if (product := identify(asked)) is not None:
        return product.id
    family = [instance for instance in instances().values() if instance.id.startswith(f"{name}.")]
    if not family:
        known = ", ".join([*accelerators(), *instances()])
        raise LaunchError("fit.accelerator", ExitCode.USAGE, found=asked, known=known)
    return max(family, key=lambda instance: instance.cores).id


def own_accelerator() -> str:
    """The product in this machine, gaudi2 where there is none."""
    from gaudi_launch.errors import LaunchError
    from gaudi_launch.host.accelerators import product_of
    from gaudi_launch.host.machine import load

    try:
        return product_of(load()) or "gaudi2"
    except LaunchError:
        return "gaudi2"


def known_model(path: str) -> Model:
    """The model with its sizes; raises LaunchError (MODEL) saying which of them nobody knows."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.models.config import looks_like_hub_id
    from gaudi_launch.models.sizing import kv_bytes_per_token, weight_bytes
    from gaudi_launch.profiles import known_model

    found = known_model(path, must_exist=False)
    if found.source == "name" and found.layers is None:
        if not looks_like_hub_id(path):
            raise LaunchError("fit.no_facts", ExitCode.MODEL, model=path)
        from gaudi_launch.models.remote import read_remote

        found = read_remote(path)
    if kv_bytes_per_token(found) is None:
        raise LaunchError("fit.no_kv_facts", ExitCode.MODEL, model=path)
    if weight_bytes(found) is None:
        raise LaunchError("fit.no_weights", ExitCode.MODEL, model=path)
    return found


def data_types(model: Model, asked: str) -> list[str]:
    """The model's own data type first; fp8 beside bfloat16, because it is the other way to fit."""
    if asked:
        return [asked]
    if model.quantization:
        return [model.quantization]
    return ["bfloat16", "fp8"]


def engine_for(name: str, model: Model, accelerator: str) -> Engine:
    """The engine whose arithmetic counts: the one named, else the one that a plan for these cards would be for."""
    from gaudi_launch.engines import registry
    from gaudi_launch.errors import ExitCode, LaunchError

    if name and registry.ALIASES.get(name, name) not in {registry.ALIASES.get(known, known) for known in ENGINES}:
        raise LaunchError("fit.engine", ExitCode.USAGE, found=name, known=", ".join(ENGINES))
    return registry.find(name or registry.assumed_for(model, lambda: accelerator))


def request_for(model: Model, length: str, requests: str, inputs: str, outputs: str) -> Request:
    """What is to be served; without a length, one for the asked inputs and outputs. Raises LaunchError for lengths
    that the model or the total cannot hold."""
    from gaudi_launch.errors import ExitCode, LaunchError
    from gaudi_launch.paths import cache_dir
    from gaudi_launch.planning.asked import MOST_SEQS, number, ranges
    from gaudi_launch.planning.lengths import BLOCK, round_up
    from gaudi_launch.planning.request import Request

    asked = ranges(inputs or None, outputs or None)
    most_in, most_out = (asked.get(f"{name}_range", (0, 0))[1] for name in ("input", "output"))
    total = number("-l", length) if length else None
    if total is None and (most_in or most_out):
        total = round_up(most_in + max(most_out, 1), BLOCK)
    longest = round_up(model.max_position_embeddings or 1 << 30, BLOCK)
    if total is not None and total > longest:
        raise LaunchError("plan.too_long", ExitCode.MODEL, found=total, longest=model.max_position_embeddings)
    if total is not None and most_in > total:
        raise LaunchError("plan.input_over_length", ExitCode.USAGE, input=most_in, length=total)
    return Request(
        model.path,
        max_model_len=total,
        max_num_seqs=number("-b", requests, 1, MOST_SEQS) if requests else None,
        trust_remote_code=True,  # whether to agree to it is asked by who starts it
        files_dir=str(cache_dir() / "buckets"),
        **asked,
    )


def _emit(
    model: Model, accelerator: str, engine: Engine | None, length: int, table: FitTable, assumed: list[str]
) -> None:
    from gaudi_launch.cli.output import emit_json

    def row(r: FitRow) -> dict[str, Any]:
        return {
            "n": r.n,
            "dtype": r.dtype,
            "fits": r.fits,
            "weights_gib_per_card": _rounded(r.weights_gib_per_card),
            "activations_gib_per_card": _rounded(r.activations_gib_per_card),
            "graphs_gib_per_card": _rounded(r.graphs_gib_per_card),
            "kv_gib_per_card": _rounded(r.kv_gib_per_card),
            "kv_bytes_per_token": r.kv_bytes_per_token,
            "kv_blocks": r.kv_blocks,
            "concurrency": _rounded(r.concurrency),
            "longest_context": r.longest_context,
            "reason": r.reason.render(),
        }

    emit_json(
        {
            "schema": 1,
            "model": model.path,
            "accelerator": accelerator,
            "engine": engine.identity.label if engine is not None else None,
            "max_model_len": length,
            "smallest_n": table.smallest_n,
            "assumed": assumed,
            "rows": [row(r) for r in table.rows],
        }
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


def _show(
    model: Model, accelerator: str, title: dict[str, Any], table: FitTable, dtypes: list[str], of_asked: bool
) -> None:
    from gaudi_launch.cli.output import console
    from gaudi_launch.cli.output import table as draw
    from gaudi_launch.messages import text

    def cell(value: float | int | None, form: str = ".1f") -> str:
        return "-" if value is None else format(value, form)

    neuron = title["id"] == "fit.title_neuron"
    names = ("cores" if neuron else "n", "dtype", "fits", "weights", "kv", "blocks", "context", "concurrency")
    columns = [text(f"fit.column_{name}") for name in (*names, "reason")]
    rows = [
        (
            str(r.n),
            r.dtype,
            text("fit.yes" if r.fits else "fit.no"),
            cell(r.weights_gib_per_card),
            cell(r.kv_gib_per_card),
            cell(r.kv_blocks, "d"),
            cell(r.longest_context, "d"),
            cell(r.concurrency),
            r.reason.render(),
        )
        for r in table.rows
    ]
    words = {name: value for name, value in title.items() if name != "id"}
    heading = text(title["id"], model=model.path, accelerator=accelerator, **words)
    out = console()
    out.print(draw(heading, columns, rows, right=(0, 3, 4, 5, 6, 7)))
    other = next((r for r in table.rows if r.fits), None)
    if table.smallest_n is not None:
        smallest = "fit.smallest_asked" if of_asked else "fit.smallest_neuron" if neuron else "fit.smallest"
        out.print(text(smallest, n=table.smallest_n, dtype=dtypes[0]), markup=False)
    elif other is not None:
        out.print(text("fit.smallest_other", dtype=dtypes[0], other=other.dtype, n=other.n), markup=False)
    else:
        uneven = all(r.reason.id in ("fit.heads", "fit.kv_heads") for r in table.rows)
        out.print(text("fit.other_n" if uneven else "fit.nowhere"), markup=False)
