"""scripts/engine_variables.py: what counts as a variable that an engine reads."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.support.places import TOP

SCRIPT = TOP / "scripts" / "engine_variables.py"
SOURCE = """import os
os.getenv("VLLM_ONE")
os.environ.get("VLLM_TWO", "1")
os.environ["VLLM_THREE"]
os.environ["VLLM_WRITTEN"] = "1"
"VLLM_FOUR" in os.environ
environment_variables = {"VLLM_FIVE": 1}
Value("some_feature", False)
Value("other", False, env_var="VLLM_SEVEN")
read_bucket_settings("prompt", "bs", min=1, max=2)
os.getenv("HOME")
print("VLLM_TEXT")
os.getenv("VLLM_ONE")
"""


def test_reads_are_listed_with_their_first_place_and_writes_are_not(tmp_path: Path) -> None:
    package = tmp_path / "engine"
    package.mkdir()
    (package / "a.py").write_text(SOURCE, encoding="utf-8")
    (package / "test_a.py").write_text('import os\nos.getenv("VLLM_TESTED")\n', encoding="utf-8")
    words = [sys.executable, str(SCRIPT), f"some/engine@abc={package}"]
    printed = subprocess.run(words, check=True, capture_output=True, text=True).stdout
    assert json.loads(printed) == {
        "schema": 1,
        "sources": {"engine": "some/engine@abc"},
        "variables": {
            "VLLM_FIVE": "engine/a.py:7",
            "VLLM_FOUR": "engine/a.py:6",
            "VLLM_ONE": "engine/a.py:2",
            "VLLM_PROMPT_BS_BUCKET_MAX": "engine/a.py:10",
            "VLLM_PROMPT_BS_BUCKET_MIN": "engine/a.py:10",
            "VLLM_SEVEN": "engine/a.py:9",
            "VLLM_SOME_FEATURE": "engine/a.py:8",
            "VLLM_THREE": "engine/a.py:4",
            "VLLM_TWO": "engine/a.py:3",
        },
    }
