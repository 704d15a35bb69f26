"""The page about a model, for people and for programs."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from typing import Any

from gaudi_launch.cli.console import console, known, sentences, table
from gaudi_launch.cli.short_page import NotedRow, ShortPage, next_line
from gaudi_launch.commands.inspect.case import InspectedModel
from gaudi_launch.commands.inspect.fit import FitResult
from gaudi_launch.commands.inspect.fitting import FittingModels
from gaudi_launch.commands.inspect.support import SupportRow
from gaudi_launch.core.base.messages import text
from gaudi_launch.core.engines.support import ended
from gaudi_launch.core.host.accelerators import accelerators
from gaudi_launch.core.models.card_memory import FitRow
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.models.sizing import counted_parameters, in_gib
from gaudi_launch.core.planning.support_answer import SupportStatus

_FIELDS = (
    "path", "name", "source", "architecture", "model_type", "parameters", "weight_bytes", "dtype",
    "quantization", "moe", "experts", "layers", "attention_layers", "hidden_size",
    "intermediate_size", "heads", "kv_heads", "head_dim", "mla_rank", "vocab_size",
    "max_position_embeddings", "tie_word_embeddings", "remote_code", "multimodal", "files_missing",
)  # fmt: skip

# what a page without --all has of the model
_SHORT = ("source", "architecture", "parameters", "heads", "experts", "context", "remote_code")
_UNEVEN = ("fit.heads", "fit.kv_heads")
_RUNNING = (SupportStatus.RUNS, SupportStatus.LIMITED)
_STATUSES = (SupportStatus.RUNS, SupportStatus.LIMITED, SupportStatus.UNKNOWN, SupportStatus.NO)


def to_json(found: InspectedModel) -> dict[str, Any]:
    """Return the page for programs."""
    model = found.model
    facts = {name: getattr(model, name) for name in _FIELDS}
    facts |= {"multimodal": list(model.multimodal), "files_missing": list(model.files_missing)}
    return {
        "schema": 1,
        **facts,
        "kv_bytes_per_token": found.kv_bytes_per_token,
        "profile": found.profile,
        "model": model.path,
        "accelerator": found.accelerator,
        **_fit_to_json(found.fit),
        "unfit": found.unfit.text.to_json() if found.unfit is not None else None,
        "versions": [_release_to_json(row) for row in found.releases],
    }


def _fit_to_json(result: FitResult | None) -> dict[str, Any]:
    """Return the numbers of cards; an empty table where they cannot be computed."""
    if result is None:
        nothing = dict.fromkeys(("engine", "max_model_len", "smallest_n"))
        return {**nothing, "assumed": [], "warnings": [], "rows": []}
    return {
        "engine": result.engine.identity.label if result.engine is not None else None,
        "max_model_len": result.max_model_len,
        "smallest_n": result.table.smallest_n,
        "assumed": list(result.assumed),
        "warnings": [each.to_json() for each in result.unknown],
        "rows": [_row_to_json(row) for row in result.table.rows],
    }


def _row_to_json(row: FitRow) -> dict[str, Any]:
    numbers = {
        name: round(value, 2) if isinstance(value, float) else value
        for name, value in vars(row).items()
        if name != "reason"
    }
    return {**numbers, "reason": row.reason.render()}


def _release_to_json(row: SupportRow) -> dict[str, Any]:
    tried = row.support.validated
    validated = None
    if tried is not None:
        validated = {
            "cards": list(tried.cards),
            "dtypes": list(tried.dtypes),
            "accelerators": list(tried.accelerators),
            "source": tried.source,
        }
    return {
        "engine": row.label,
        "status": row.support.status.value,
        "refused": row.support.refused,
        "reasons": [reason.to_json() for reason in row.support.reasons],
        "fewest_cards": row.fewest_cards,
        "validated": validated,
        "evidence": row.support.evidence,
        "kv_cache": [
            {
                "kind": each.kind,
                "layers": each.layers,
                "allocates": each.allocates,
                "message": each.meaning.render(),
                "source": each.source or None,
            }
            for each in row.support.caches
        ],
        "kv_bytes_per_token": row.kv_bytes_per_token,
        "installed": row.is_installed,
        "facts_date": row.facts.date if row.facts is not None else None,
        "ended": ended(row.label),
        "features": [
            {
                "id": each.feature,
                "status": each.status,
                "message": each.answer(row.label).render(),
                "source": each.thread or None,
            }
            for each in row.features
        ],
    }


def list_to_json(found: FittingModels) -> dict[str, Any]:
    """Return the models for programs."""
    return {
        "schema": 1,
        "accelerator": found.accelerator.id,
        "cards": found.cards,
        "models": [
            {
                "model": each.model.path,
                "profile": each.profile.name,
                "own": each.profile.own,
                "parameters": each.profile.facts["parameters"],
                "max_position_embeddings": each.profile.facts["max_position_embeddings"],
                "dtype": each.dtype,
                "smallest_n": each.cards,
            }
            for each in found.models
        ],
    }


def show_list(found: FittingModels, *, complete: bool) -> None:
    """Print how many models fit, then the fewest cards of each."""
    fit = [each for each in found.models if each.cards is not None]
    answer = text(
        "fit.models",
        n=len(fit),
        models=len(found.models),
        cards=found.cards,
        product=found.accelerator.title,
    )
    notes = [] if found.here else [text("fit.models_elsewhere")]
    rows = [
        NotedRow(
            (
                each.model.path,
                f"{each.profile.facts['parameters'] / 1e9:,.1f}B",
                each.dtype,
                text("common.none") if each.cards is None else str(each.cards),
            )
        )
        for each in (fit if fit and not complete else found.models)
    ]
    columns = ["model", "parameters", "dtype"]
    page = ShortPage(
        [answer, *notes, next_line(f"gaudi-launch inspect {rows[0].cells[0]}")],
        [*(text(f"models.word_{name}") for name in columns), text("fit.column_n")],
        rows,
        right=(1, 3),
    )
    page.show(complete=complete)


def show(found: InspectedModel, *, complete: bool) -> None:
    """Print the verdict, what to do, the facts, the cards and the releases."""
    out = console()
    for sentence in _verdicts(found):
        out.print(sentence)
    command = _next(found)
    if command:
        out.print(text("page.next", command=command), soft_wrap=True)
    for word, value in _lines(found):
        if value not in (None, "", ()) and (complete or word in _SHORT):
            shown = f"{value:,}" if isinstance(value, int) else value
            out.print(text("common.pair", label=text(f"models.word_{word}"), value=shown))
    missing = found.model.files_missing
    if missing and not complete:
        out.print(text("models.missing", n=len(missing), first=missing[0]))
    if found.fit is not None:
        _show_cards(found.fit, complete=complete)
    _show_releases(found.releases, complete=complete)
    if complete:
        if found.releases:
            _show_reasons(found.releases)
            _show_caches(found.releases)
            _show_features(found.releases)
    else:
        out.print(text("models.more"))


def _verdicts(found: InspectedModel) -> list[str]:
    """Return the first sentences, about cards and engines."""
    runs = _runs(found)
    if found.unfit is not None:
        return [*runs, found.unfit.text.render()]
    fits = [_fits(found.fit)] if found.fit is not None else []
    runnable = any(row.support.status in _RUNNING for row in found.releases)
    return [*fits, *runs] if runnable or not runs else [*runs, *fits]


def _runs(found: InspectedModel) -> list[str]:
    """Return the sentence about a release, preferably the plan's."""
    if not found.releases:
        return []
    running = [row for row in found.releases if row.support.status in _RUNNING]
    if not running:
        model, rows = found.model.path, found.releases
        refused = all(row.support.status is SupportStatus.NO for row in rows)
        if len(rows) == 1:
            id = "support.one_no" if refused else "support.one_unknown"
            return [text(id, engine=rows[0].label, model=model)]
        return [text("support.nowhere_runs" if refused else "support.nowhere_known", model=model)]
    row = _planned_row(found, running) or running[0]
    tried = row.support.validated
    id = "support.runs" if row.support.status is SupportStatus.RUNS else "support.limited"
    sentence = text(id, engine=row.label)
    if tried is None or found.accelerator.partition("-")[0] not in tried.accelerators:
        return [sentence]
    cards, dtypes = "/".join(map(str, tried.cards)), "/".join(tried.dtypes)
    return [sentences(sentence, text("support.validated", cards=cards, dtypes=dtypes))]


def _planned_row(found: InspectedModel, rows: Sequence[SupportRow]) -> SupportRow | None:
    """Return the row of the release for which the cards were counted."""
    if found.fit is None or found.fit.engine is None:
        return None
    planned = found.fit.engine.identity.exact
    return next((row for row in rows if row.label == planned), None)


def _fits(result: FitResult) -> str:
    """Return the sentence about the smallest number of cards, or why none fits."""
    smallest, dtype = result.table.smallest_n, result.dtypes[0]
    product = accelerators().get(result.accelerator)
    about = {
        "model": result.model.path,
        "dtype": dtype,
        "product": product.title if product is not None else result.accelerator,
    }
    if smallest is not None:
        id = "fit.smallest"
        if result.cores is not None:
            id = "fit.smallest_neuron"
        elif result.numbers_given:
            id = "fit.smallest_asked"
        return text(id, n=smallest, **about)
    for row in result.table.rows:
        if row.fits:
            return text("fit.smallest_other", other=row.dtype, n=row.n, **about)
    if all(row.reason.id in _UNEVEN for row in result.table.rows):
        return text("fit.other_n", **about)
    if any(row.reason.id == "fit.unknown" for row in result.table.rows):
        return text("fit.not_known", dtype=dtype)
    would = text("common.between").join(way.render() for way in result.would)
    return text("fit.nowhere", would=would, **about)


def _next(found: InspectedModel) -> str:
    """Return the command that serves the model on the fewest cards, or ""."""
    if found.fit is None or found.fit.cores is not None:
        return ""
    fitting = [row for row in found.fit.table.rows if row.fits]
    if not fitting or _planned_row(found, [row for row in found.releases if row.support.refused]):
        return ""
    # serve fetches a hub ID, not a shorter name of it
    ids = [each.values["hub_id"] for each in found.fit.unknown if each.id == "plan.name_listed"]
    name = str(ids[0]) if ids else found.model.path
    words = ["gaudi-launch", "serve", name, "-n", str(fitting[0].n)]
    if fitting[0].dtype == "fp8" and not found.model.quantization:
        words += ["-d", "fp8"]
    given, lengths = found.options, found.options.lengths
    # what the answer is for
    named = {
        "-l": lengths.length,
        "-i": lengths.inputs,
        "-o": lengths.outputs,
        "-b": lengths.requests,
        "--engine": given.engine,
        "--revision": given.revision,
    }
    words += [word for pair in named.items() if pair[1] for word in pair]
    return shlex.join(words)


def _lines(found: InspectedModel) -> list[tuple[str, object]]:
    model, kv_bytes = found.model, found.kv_bytes_per_token
    parameters = None
    if model.parameters:
        parameters = f"{model.parameters / 1e9:.1f}B ({model.parameters:,})"
    elif counted := counted_parameters(model):
        parameters = text("models.counted", billions=f"{counted / 1e9:.1f}")
    weights = "" if model.source == "hub" else text("models.no_weights")
    if model.weight_bytes:
        weights = f"{model.weight_bytes / 2**30:.2f} GiB"
    kv = None
    if kv_bytes:
        kv = text("models.kv", bytes=kv_bytes, block=f"{kv_bytes * 128 / 2**20:.3g}")
    return [
        ("model", model.path),
        ("source", _source(found)),
        (
            "architecture",
            " / ".join(word for word in (model.architecture, model.model_type) if word),
        ),
        ("parameters", parameters),
        ("weights", weights),
        ("dtype", ", ".join(word for word in (model.dtype, model.quantization) if word)),
        ("layers", _layers(model)),
        ("heads", _heads(model)),
        ("mla", model.mla_rank),
        ("experts", model.experts if model.moe else None),
        ("hidden", model.hidden_size),
        ("context", model.max_position_embeddings),
        ("vocabulary", model.vocab_size),
        ("kv", kv),
        ("multimodal", ", ".join(model.multimodal)),
        ("remote_code", text("models.remote_code") if model.remote_code else None),
        ("profile", found.profile),
        *(("missing", name) for name in model.files_missing),
    ]


def _source(found: InspectedModel) -> str | None:
    """Return where the facts are from, if that is not the model's folder."""
    if found.model.source == "profile":
        return text("models.from_profile", profile=found.profile)
    return text("models.from_hub") if found.model.source == "hub" else None


def _heads(model: Model) -> object:
    if not model.heads or model.mla_rank:
        return model.heads
    return text("models.heads", heads=model.heads, kv=model.kv_heads, size=model.head_dim)


def _layers(model: Model) -> str | None:
    if model.layers is None:
        return None
    if model.attention_layers in (None, model.layers):
        return str(model.layers)
    return text("models.layers", layers=model.layers, attention=model.attention_layers)


def _show_cards(result: FitResult, *, complete: bool) -> None:
    """Print the table of the numbers of cards, the reasons and notes."""
    first = text("fit.column_n" if result.cores is None else "fit.column_cores")
    columns = [first, *text("fit.columns").split("|")]
    out = console()
    rows = [
        (
            str(row.n),
            row.dtype,
            text("fit.yes" if row.fits else "fit.no"),
            known(row.weights_gib_per_card, "{:.1f}"),
            known(row.kv_gib_per_card, "{:.1f}"),
            known(row.longest_context, "{:,}"),
            known(row.concurrency, "{:,.1f}"),
        )
        for row in result.table.rows
    ]
    out.print(table(_title(result), columns, rows, right=(0, 3, 4, 5, 6)))
    if complete:
        for reason in dict.fromkeys(row.reason.render() for row in result.table.rows):
            out.print(reason)
    if result.profile is not None and not result.unknown and complete:
        out.print(text("fit.from_profile", profile=result.profile))
    if result.assumed and complete:
        what = text("common.between").join(_assumption(name) for name in result.assumed)
        out.print(text("fit.assumed", what=what))
    for warning in result.unknown:
        out.print(text("plan.warning", what=warning.render()))


def _assumption(name: str) -> str:
    """Return the text of an assumption, such as "gaudi3-pcie.memory"."""
    owner, _, part = name.rpartition(".")
    if part == "memory":
        return text("fit.assumed_memory", accelerator=owner)
    if part == "architecture":
        return text("fit.assumed_architecture", profile=owner)
    return text("fit.assumed_activations")


def _title(result: FitResult) -> str:
    if result.usable_bytes is None:
        return text("fit.title_neuron", accelerator=result.accelerator, cores=result.cores)
    return text(
        "fit.title",
        accelerator=result.accelerator,
        memory=f"{in_gib(result.usable_bytes):.1f}",
        length=result.max_model_len,
    )


def _show_releases(releases: Sequence[SupportRow], *, complete: bool) -> None:
    """Print the releases, those with the same answer in one line.

    ``complete``: also those of which nothing is known.
    """
    out = console()
    order = [row.label for row in releases]
    for status in _STATUSES:
        labels = [row.label for row in releases if row.support.status is status]
        if labels and (complete or status is not SupportStatus.UNKNOWN):
            label = text(f"support.answer_{status.value}")
            out.print(text("common.pair", label=label, value=_spans(labels, order)))


def _spans(labels: Collection[str], order: Sequence[str]) -> str:
    """Return labels as ranges of neighbours of one engine; ``order`` is newest first.

    >>> _spans(["a@3", "a@2", "b@1"], ["a@4", "a@3", "a@2", "b@1"])
    'a@2 - 3, b@1'
    """
    runs: list[list[str]] = []
    before = ""
    for label in order:
        if label in labels:
            engine = label.partition("@")[0]
            follows = bool(runs) and runs[-1][-1] == before
            if follows and before.partition("@")[0] == engine:
                runs[-1].append(label)
            else:
                runs.append([label])
        before = label
    return text("common.between").join(
        run[0] if len(run) == 1 else f"{run[-1]} - {run[0].rpartition('@')[2]}" for run in runs
    )


def _show_reasons(releases: Sequence[SupportRow]) -> None:
    """Print each reason once, with its releases, and the fewest cards."""
    out = console()
    order = [row.label for row in releases]
    concerned: dict[str, list[str]] = {}
    for row in releases:
        for reason in row.support.reasons:
            concerned.setdefault(reason.render(), []).append(row.label)
    for sentence, labels in concerned.items():
        out.print(text("common.pair", label=_spans(labels, order), value=sentence))
    fewest: dict[int, list[str]] = {}
    for row in releases:
        if row.fewest_cards is not None:
            fewest.setdefault(row.fewest_cards, []).append(row.label)
    for n, labels in sorted(fewest.items()):
        out.print(text("support.fewest", n=n, engines=_spans(labels, order)))
    out.print(text("support.sources"))


def _show_caches(releases: Sequence[SupportRow]) -> None:
    """Print what the versions allocate, those with the same answer in one row."""
    order = [row.label for row in releases]
    by_answer: dict[tuple[str, str, str], list[str]] = {}
    for row in releases:
        for each in row.support.caches:
            kind = text(f"support.kind_{each.kind}")
            count = kind if each.layers is None else f"{each.layers} {kind}"
            size = _size_of(row, each.kind)
            by_answer.setdefault((count, each.meaning.render(), size), []).append(row.label)
    if not by_answer:
        return
    columns = text("support.cache_columns").split("|")
    rows = [
        (_spans(labels, order), count, sentences(meaning, size))
        for (count, meaning, size), labels in by_answer.items()
    ]
    console().print(table(text("support.title_cache"), columns, rows))


def _size_of(row: SupportRow, kind: str) -> str:
    """Return the size of a token next to the row that decides it."""
    deciding = next((each.kind for each in row.support.caches if each.kind != "state"), None)
    if row.kv_bytes_per_token is None or kind != deciding:
        return ""
    return text("support.cache_size", kib=f"{row.kv_bytes_per_token / 1024:.1f}")


def _show_features(releases: Sequence[SupportRow]) -> None:
    """Print the answers about features of each engine's newest version with a list."""
    newest: dict[str, SupportRow] = {}
    for row in releases:
        if row.facts is not None and row.facts.complete:
            newest.setdefault(row.facts.engine, row)
    rows = [
        (text(f"features.name_{answer.feature}"), answer.answer(row.label).render())
        for row in newest.values()
        for answer in row.features
        if answer.status != "unknown"
    ]
    columns = [text("features.column_feature"), text("features.column_answer")]
    console().print(table(text("features.title"), columns, sorted(rows, key=lambda row: row[0])))
