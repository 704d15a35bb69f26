"""The page of mutants that no test noticed, from results of scripts/mutation.py."""

from __future__ import annotations

from tests.support.scripts import script

RESULT = {
    "targets": ["host"],
    "tests": ["tests/cli/commands/test_devices.py"],
    "mutants": [
        {"path": "gaudi_launch/host/read.py", "line": 1, "outcome": "killed", "diff": "-a\n+b"},
        {"path": "gaudi_launch/host/read.py", "line": 2, "outcome": "timeout", "diff": "-a\n+b"},
        {
            "path": "gaudi_launch/host/read.py",
            "line": 31,
            "outcome": "untested",
            "diff": "-        FolderFiles(root),",
        },
        {
            "path": "gaudi_launch/host/simulated.py",
            "line": 58,
            "outcome": "survived",
            "diff": '-    (5, "bc"),\n+    (6, "bc"),',
        },
    ],
}


def test_the_page_has_counts_and_the_lines_of_what_was_not_noticed() -> None:
    survivors = script("survivors")
    lines = "\n".join(survivors.page([RESULT])).partition("| package")[2].splitlines()
    assert lines == [
        " | mutants | killed or timed out | survived | untested |",
        "|---|---|---|---|---|",
        "| host | 4 | 50.0 % | 1 | 1 |",
        "",
        "## host",
        "",
        "Judged also by tests/cli/commands/test_devices.py.",
        "",
        "```diff",
        "# host/read.py:31, untested",
        "- FolderFiles(root),",
        "# host/simulated.py:58",
        '- (5, "bc"),',
        '+ (6, "bc"),',
        "```",
    ]
