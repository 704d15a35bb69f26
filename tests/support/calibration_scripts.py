"""Write a stand-in for the forks' calibration scripts into a folder."""

from __future__ import annotations

from pathlib import Path

# the options of HabanaAI/vllm-hpu-extension@8afd253 and @f5f9ecb, and of
# vllm-project/vllm-gaudi@091bbadd: calibration/step-*.py
_STEP_1 = (
    "--dataset",
    "--model",
    "--output_name",
    "--max-model-length",
    "--max-dataset-samples",
    "--chat-template",
)


_STEP_2 = (
    *("--dataset", "--model", "--batch-size", "--tensor-parallel-size", "--max-dataset-samples"),
    *("--max-num-prefill-seqs", "--max-model-len", "--verbose", "--distributed-executor-backend"),
)


_STEP_3 = ("--measurements", "--out", "--deepseek")


_STEP_4 = ("--model", "--tensor-parallel-size", "--distributed-executor-backend")


OPTIONS = {
    "1.21": {1: _STEP_1, 2: _STEP_2, 3: _STEP_3, 4: _STEP_4},
    "1.22": {
        1: _STEP_1,
        2: (
            *_STEP_2,
            *(
                "--expert-parallel",
                "--auto-process-dataset",
                "--enforce-eager",
                "--max-tokens",
                "--sample-len",
            ),
        ),
        3: _STEP_3,
        4: (*_STEP_4, "--enforce-eager", "--expert-parallel", "--max-num-prefill-seqs"),
    },
    "vllm-gaudi": {
        1: _STEP_1,
        2: (
            *_STEP_2,
            *(
                "--expert-parallel",
                "--auto-process-dataset",
                "--enforce-eager",
                "--max-tokens",
                "--sample-len",
            ),
            *("--block-quant", "--gpu-memory-utilization"),
        ),
        3: _STEP_3,
        4: (
            *(
                *_STEP_4,
                "--enforce-eager",
                "--expert-parallel",
                "--max-num-prefill-seqs",
                "--block-quant",
            ),
            *("--gpu-memory-utilization", "--max-model-len"),
        ),
        5: ("--measurements", "--rank", "--out", "--use_expert_paral", "--skip_unify_scales"),
        6: ("--measurements", "--out", "--target_world_size"),
    },
}


# HabanaAI/vllm-fork@016b6bd20:scripts/run_example_tp.py
_EXAMPLE = (
    *(
        "--model",
        "--tokenizer",
        "--tp_size",
        "--ep_size",
        "--dataset",
        "--isl",
        "--osl",
        "--nprompts",
    ),
    *("--max_num_seqs", "--max_model_len", "--random", "--fp8_kv_cache", "--enforce_eager"),
)


_NEW = "step-3-postprocess-measure.py"


POSTPROCESS = {"1.21": "step-3-postprocess_measure.py", "1.22": _NEW, "vllm-gaudi": _NEW}


DEEPSEEK = "deepseek_r1"


def write_scripts(folder: Path, release: str) -> Path:
    """Return files of the real names that mention the real options."""
    folder.mkdir(parents=True)
    if release == DEEPSEEK:
        (folder / "run_example_tp.py").write_text(
            "".join(f'parser.add_argument("{one}")\n' for one in _EXAMPLE)
        )
        return folder
    names = {
        1: "step-1-prepare-calibration-dataset.py",
        2: "step-2-measure-scales.py",
        3: POSTPROCESS[release],
        4: "step-4-quantize-scales.py",
        5: "step-5-unify_measurements.py",
        6: "step-6-expand-measurements.py",
    }
    for step, name in names.items():
        if step not in OPTIONS[release]:
            continue
        (folder / name).write_text(
            "".join(f'parser.add_argument("{one}")\n' for one in OPTIONS[release][step])
        )
    return folder
