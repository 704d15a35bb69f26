"""What a repository needs to be built, by the text of its files."""

from __future__ import annotations

import pytest

from gaudi_launch.extensions.offline.build_needs import build_requirements, repositories


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ('[build-system]\nrequires = ["setuptools", "wheel"]\n', ["setuptools", "wheel"]),
        (
            "[project]\nrequires = ['no']\n[build-system]\nrequires = [\n"
            '  "setuptools_scm[toml]>=8",  # "comment"\n  \'ninja\',\n]\nbuild-backend = "x"\n'
            '[tool.x]\nrequires = ["other"]\n',
            ["setuptools_scm[toml]>=8", "ninja"],
        ),
        ("[project]\nname = 'x'\n", ["setuptools", "wheel"]),
    ],
)
def test_the_build_system_of_a_project(text: str, wanted: list[str]) -> None:
    assert build_requirements({"pyproject.toml": text}) == wanted


def test_the_requirements_file_of_a_build_without_its_pytorch() -> None:
    text = "# head\n-r other.txt\ncmake>=3.26 # why\n\ntorch==2.9\ntorchvision\nninja\n"
    assert build_requirements({"cuda.txt": text}) == ["cmake>=3.26", "ninja"]


def test_repositories_that_requirements_name() -> None:
    texts = [
        "a @ git+https://github.com/Owner/name.git@abc123\n# git+https://github.com/no/no.git",
        "git+https://github.com/Owner/name.git@abc123\ngit+https://github.com/me/it-is_2.x@main\n",
        "git+https://example.com/Owner/other.git\n",
    ]
    assert repositories(texts) == ("Owner/name", "me/it-is_2.x")
