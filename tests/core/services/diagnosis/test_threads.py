"""Logs of public threads, and any of their errors behind any prefix, among any noise."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaudi_launch.core.base.yaml_reader import parse_yaml
from gaudi_launch.core.services.diagnosis.diagnose import diagnose
from tests.support.places import DATA

THREADS = parse_yaml((DATA / "threads.yaml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", THREADS, ids=lambda case: case["thread"])
def test_what_a_public_thread_asks(case: dict[str, Any]) -> None:
    found = diagnose(case["log"])
    first = found.causes[0] if found.causes else None
    if "cause" not in case:
        assert (found.failed, first) == (False, None)
        assert [each.id for each in found.findings] == case["findings"]
        return
    assert first is not None and first.id == case["cause"]
    assert case["quote"] in "\n".join(line for _, line in first.evidence)


# how lines reach a log: through a container, a cluster, a service manager, other launchers
CARRIERS = (
    *("", "vllm-1  | ", "tgi-gaudi-server          | ", "[pod/qwen-7d9c-x2/engine] "),
    *("2026-11-21T03:02:41.123456789Z ", "2026-11-21T03:02:41.1234Z stderr F ", "10.0.0.7: "),
    *("Nov 21 03:02:41 gaudi01 vllm[4242]: ", "vllm-1  | 2026-11-21T03:02:41.123456789Z "),
)
PROCESSES = (
    *("", "(EngineCore_DP0 pid=293) ", "\x1b[1;36m(Worker_TP6 pid=14)\x1b[0;0m ", "[rank3]: "),
    *("(ServeReplica:default:org/model-8B pid=7, ip=10.0.0.2) ", "(APIServer pid=12) "),
    *("(RayWorkerWrapper pid=7) (EngineCore_0 pid=8) ", "[1,3]<stderr>:"),
)
HEADERS = (
    *("ERROR 11-21 04:16:31 [core.py:935] ", "ERROR 11-21 04:16:31 engine.py:387] "),
    *("ERROR:    ", "2026-11-21T03:02:41.123456Z ERROR shard-manager: launcher: "),
    *("2026-11-21 03:02:41,123 - root - ERROR - ", "[2026-11-21 03:02:41,123] [ERROR] [l.py:1] "),
    *("[17:02:11][GC][error] ", "11/21/2026 03:02:41 - CRITICAL - __main__ - ", "ERRO[0000] "),
    *("E1121 03:02:41.123456       1 serve.go:2] ", 'time="2026-11-21T03:02:41Z" level=error '),
    *("ERROR 2026-11-21 03:02:41,123 controller 30685 state.py:617 - ", "[ERROR|t.py:5] "),
    *("2026-11-21 03:02:41.123 | ERROR    | mod:func:12 - ", "[11/21/26 03:02:41] ERROR    "),
    *("2026/11/21 03:02:41 [error] 7#7: *1 ", "2026-11-21T03:02:41Z ERR ", "ERROR:root:"),
    *(
        "[E1121 03:02:41.123456789 ProcessGroupHCCL.cpp:12] ",
        "ERROR | ",
        "[03:02:41][HCL ][error] ",
    ),
    *("[2026-11-21 03:02:41,123 E 123 456] node_manager.cc:12: ", "ts=2026-11-21 level=error msg="),
)
MESSAGES = ("the frobnicator is not ready", "cannot reach peer 7", "weights of layer 3: odd shape")
RAISED = (
    *("ValueError: odd frobnicator", "some.package.OddError: peer 7", "KeyError: 'layers.3'"),
    *("RuntimeError: [Rank:0] FATAL ERROR :: MODULE:PT_DEVICE odd", "AssertionError: no shape"),
)
REPORTED = (
    *("docker: Error response from daemon: odd daemon", "Error: odd backend", "odd: error: no x"),
    *("/hcl/src/a.cpp:7(init): The condition [ x ] failed. Odd", "run.sh: hl-x: command not found"),
    "  Warning  OddReason  12s (x3 over 1m)  kubelet  the volume is odd",
    "12s   Warning   OddReason   pod/engine-0   the volume is odd",
)
CONSEQUENCES = (
    "RuntimeError: Engine core initialization failed. See root cause above.",
    "[rank0]: RuntimeError: Graph compile failed. synStatus=synStatus 26 [Generic failure].",
    "Exception: WorkerProc initialization failed due to an exception in a background process.",
    "Error: ShardCannotStart",
    "terminate called without an active exception",
)
NOISE = (
    "INFO 11-21 03:02:41 [loader.py:1] Starting to load model m...",
    "(APIServer pid=12) INFO 11-21 03:02:41 [utils.py:1] non-default args: {'x': 'Error: y'}",
    "WARNING 11-21 03:02:41 [interface.py:222] Failed to import vllm._C: ModuleNotFoundError(...)",
    "2026-11-21T03:02:41.123456Z  WARN text_generation_launcher: Could not import x: ValueError: y",
    "/usr/lib/python3.12/site.py:3: UserWarning: OSError: an old API",
    "[WARNING|utils.py:2] 2026-11-21 03:02:41,123 >> optimum-habana v1 has been validated for x",
    'WARN[0000] The "HF_TOKEN" variable is not set. Defaulting to a blank string.',
    "  Normal   Pulled     12m (x5 over 40m)   kubelet  Container image already present",
    "I1121 03:02:41.123456       1 serve.go:2] no error",
    "Loading safetensors checkpoint shards:  20% Completed | 1/5 [00:00<00:02,  1.56it/s]",
    '{"timestamp":"x","level":"INFO","fields":{"message":"Error rate 0"}}',
    *(" PT_HPU_LAZY_MODE = 1", "", "^^^^^^^^^^", "0 errors, 0 warnings"),
)
READY = (
    *("INFO:     Application startup complete.", "2026-11-21T03:02:41Z  INFO router: Connected"),
    "INFO 2026-11-21 03:02:41,123 serve 7 -- Application 'default' is ready at http://127.0.0.1/.",
)

noise = st.lists(st.sampled_from(NOISE), max_size=4)


@st.composite
def failures(draw: st.DrawFn) -> tuple[str, str]:
    """Return a log of a failed launch, and its first error."""
    process = draw(st.sampled_from(PROCESSES))
    kind = draw(st.sampled_from(("logged", "raised", "reported")))
    if kind == "reported":
        first = draw(st.sampled_from(REPORTED))
        lines = [first]
    elif kind == "logged":
        first = draw(st.sampled_from(MESSAGES))
        lines = [process + draw(st.sampled_from(HEADERS)) + first]
    else:
        first = draw(st.sampled_from(RAISED))
        mark = process + draw(st.sampled_from(("", *HEADERS[:3])))
        frames = ("Traceback (most recent call last):", '  File "/x/y.py", line 3, in f', "    f()")
        lines = [mark + line for line in (*frames[draw(st.integers(0, 3)) :], first)]
    after = draw(st.lists(st.sampled_from((*CONSEQUENCES, *NOISE)), max_size=5))
    carrier = draw(st.sampled_from(CARRIERS))
    log = [carrier + line for line in (*draw(noise), *lines, *after)]
    return "\n".join(log), first.split("  ")[-1].strip()


@settings(max_examples=400, deadline=None)
@given(failures())
def test_the_first_error_of_any_log_is_quoted(drawn: tuple[str, str]) -> None:
    log, first = drawn
    found = diagnose(log)
    assert found.failed
    assert first in "\n".join(line for _, line in found.causes[0].evidence)


@settings(max_examples=200, deadline=None)
@given(noise, noise, st.sampled_from((*READY, "")), st.sampled_from(CARRIERS))
def test_no_healthy_log_has_failed(
    before: list[str], after: list[str], ready: str, carrier: str
) -> None:
    found = diagnose("\n".join(carrier + line for line in (*before, ready, *after)))
    assert (found.failed, found.causes) == (False, ())
