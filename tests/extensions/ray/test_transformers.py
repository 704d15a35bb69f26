"""Plain generation by transformers: its settings, command and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message, message
from gaudi_launch.core.host.simulated import make
from gaudi_launch.core.models.model import Model
from gaudi_launch.core.planning.plan import Plan
from gaudi_launch.core.planning.planner import make_plan
from gaudi_launch.core.planning.request import Request
from gaudi_launch.extensions.ray.transformers import HuggingFace

CODE = Model("/m/x", "x", remote_code=True, max_position_embeddings=4096)
PLAIN = Model("org/x", "x")
CARD = HuggingFace("/p/python", {"transformers": "4.52.4"}, optimum="1.20.0")
CPU = HuggingFace(on_cards=False)


def plan(engine: HuggingFace, model: Model = PLAIN, **wishes: Any) -> Plan:
    return make_plan(Request(model.path, **wishes), make("hls2"), model, engine)


def shown(made: Plan) -> list[tuple[str, str | None, str, Message]]:
    return [(each.name, each.value, each.source, each.reason) for each in made.settings]


def flag(name: str) -> Message:
    return message("plan.flag", flag=name)


def test_on_a_card_it_is_lazy_and_in_bfloat16() -> None:
    made = plan(CARD)
    assert shown(made) == [
        ("--host", "127.0.0.1", "computed", message("ray.plain")),
        ("--port", "30001", "computed", message("ray.plain")),
        ("--model", "org/x", "flag", flag("-w")),
        ("--served-model-name", "x", "computed", message("ray.plain")),
        ("--dtype", "bfloat16", "computed", message("ray.plain_bfloat16")),
        ("--max-model-len", "2048", "computed", message("ray.plain_length")),
        ("HABANA_VISIBLE_MODULES", "0", "computed", message("plan.placement")),
        ("PT_HPU_LAZY_MODE", "1", "computed", message("ray.plain_lazy")),
        ("TOKENIZERS_PARALLELISM", "false", "computed", message("ray.plain_threads")),
    ]
    assert made.command.argv[:3] == ("/p/python", "--host", "127.0.0.1")
    assert (made.command.cpus, made.command.memory_node) == (made.placement.cpus, 0)
    assert made.placement.cpus
    assert made.command.env == {
        "HABANA_VISIBLE_MODULES": "0",
        "PT_HPU_LAZY_MODE": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }
    assert made.engine.exact == "transformers@4.52.4"


def test_on_the_cpu_the_users_options_are_those_of_the_replica() -> None:
    wishes = {"host": "node1", "port": 80, "served_name": "chat", "dtype": "float16"}
    made = plan(CPU, CODE, **wishes, max_model_len=4096, trust_remote_code=True)
    assert shown(made) == [
        ("--host", "node1", "flag", flag("-u")),
        ("--port", "80", "flag", flag("-p")),
        ("--model", "/m/x", "flag", flag("-w")),
        ("--served-model-name", "chat", "flag", flag("--served-name")),
        ("--dtype", "float16", "flag", flag("-d")),
        ("--max-model-len", "4096", "flag", flag("-l")),
        ("--trust-remote-code", None, "flag", message("plan.agreed")),
        ("TOKENIZERS_PARALLELISM", "false", "computed", message("ray.plain_threads")),
        ("HF_HUB_OFFLINE", "1", "computed", message("plan.cpu_offline")),
    ]
    assert made.command.argv[0] == "python3"
    assert (made.engine.exact, made.placement.modules) == ("transformers@-", ())
    assert ("--dtype", "float32") in {(name, value) for name, value, *_ in shown(plan(CPU))}


@pytest.mark.parametrize(
    ("engine", "wishes", "code", "expected"),
    [
        (CARD, {"cards": 2}, ExitCode.USAGE, message("ray.plain_cards", found=2)),
        (CARD, {"max_num_seqs": 2}, ExitCode.USAGE, message("ray.plain_option", flag="-b")),
        (CPU, {"modules": (1,)}, ExitCode.USAGE, message("ray.plain_option", flag="-m")),
        (CPU, {"dtype": "fp8"}, ExitCode.USAGE, message("ray.plain_option", flag="-d fp8")),
        (
            CPU,
            {"extra": ("--seed", "1")},
            ExitCode.USAGE,
            message("ray.plain_option", flag="-- --seed"),
        ),
        (CPU, {}, ExitCode.MODEL, message("plan.remote_code", model="x")),
        (
            CPU,
            {"max_model_len": 4097, "trust_remote_code": True},
            ExitCode.MODEL,
            message("plan.too_long", found=4097, longest=4096, source="name", option="-l"),
        ),
    ],
)
def test_what_it_cannot_do_is_refused(
    engine: HuggingFace, wishes: dict[str, Any], code: ExitCode, expected: Message
) -> None:
    with pytest.raises(LaunchError) as caught:
        plan(engine, CODE, **wishes)
    assert (caught.value.exit_code, caught.value.text) == (code, expected)
