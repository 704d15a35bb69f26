"""The mirrors of a site: which one is in force, and what each program gets."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.mirrors import NONE, Mirrors, has_secret, read
from tests.support.refusals import raising, refused


@pytest.fixture(autouse=True)
def settings(own_folders: Path) -> Path:
    folder = own_folders / "config/gaudi-launch"
    folder.mkdir(parents=True)
    return folder / "mirrors.yaml"


def refusal(given: dict[str, str | None], environment: dict[str, str]) -> tuple[str, int]:
    with pytest.raises(LaunchError) as caught:
        read(given, environment)
    assert "hunter2" not in str(caught.value)
    return caught.value.id, int(caught.value.exit_code)


def test_an_option_is_stronger_than_a_variable_and_that_than_the_file(settings: Path) -> None:
    settings.write_text("torch: https://file/whl\ngit: https://file/git\nregistry: file:5000\n")
    environment = {
        "GAUDI_LAUNCH_TORCH_INDEX": "https://variable/whl",
        "GAUDI_LAUNCH_GIT_MIRROR": "https://variable/git/",
    }
    found = read({"torch": "https://option/whl", "git": None}, environment)
    assert found == Mirrors(
        torch="https://option/whl",
        git="https://variable/git",
        registry="file:5000",
        options=("--torch-index",),
    )


def test_pip_reads_its_own_variable_itself() -> None:
    found = read({}, {"PIP_INDEX_URL": "https://u:hunter2@host/simple"})
    assert found.pip_words == ()
    assert "hunter2" not in repr(found)
    assert read({"pip": "https://m/simple"}, {}).pip_words == ("--index-url", "https://m/simple")


@pytest.mark.parametrize(
    ("given", "environment", "id"),
    [
        ({"pip": "https://u:hunter2@host/simple"}, {}, "setup.address_secret"),
        ({"pip": "ftp://host"}, {}, "setup.address_bad"),
        ({"torch": "https://hunter2@host/whl"}, {}, "mirrors.address_secret"),
        ({"registry": "u:hunter2@host:5000"}, {}, "mirrors.address_secret"),
        ({"registry": "https://host"}, {}, "mirrors.address_bad"),
        ({"git": "host/path"}, {}, "mirrors.address_bad"),
        ({}, {"GAUDI_LAUNCH_GIT_MIRROR": "https://u:hunter2@h/"}, "mirrors.address_secret"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(
    given: dict[str, str | None], environment: dict[str, str], id: str
) -> None:
    assert refusal(given, environment) == (id, ExitCode.USAGE)


@pytest.mark.parametrize("content", ["- a\n", "torch: [1]\n", "pypi: https://h\n", "a: b: c\n"])
def test_a_file_that_is_not_one_of_mirrors_is_refused(settings: Path, content: str) -> None:
    settings.write_text(content)
    assert refusal({}, {}) == ("mirrors.bad_file", ExitCode.USAGE)


@pytest.mark.parametrize(
    ("address", "secret"),
    [
        ("https://host/a@b", False),
        ("ssh://git@host/path", False),
        ("ssh://git:pw@host/path", True),
        ("https://token@host/", True),
        ("user:pw@host:5000/a", True),
    ],
)
def test_a_password_in_an_address_is_seen(address: str, secret: bool) -> None:
    assert has_secret(address) is secret


@pytest.mark.parametrize(
    ("name", "mirrored"),
    [
        ("vault.habana.ai/gaudi-docker/a:1", "m:5000/p/gaudi-docker/a:1"),
        ("localhost/a:1", "m:5000/p/a:1"),
        ("owner/name:1", "m:5000/p/owner/name:1"),
        ("debian:12", "m:5000/p/library/debian:12"),
        ("gaudi-launch/vllm-fork:1", "gaudi-launch/vllm-fork:1"),
    ],
)
def test_a_registry_replaces_that_of_an_image(name: str, mirrored: str) -> None:
    assert Mirrors(registry="m:5000/p").image(name) == mirrored
    assert NONE.image(name) == name


def test_git_fetches_from_the_mirror_also_with_settings_of_the_user(tmp_path: Path) -> None:
    bare = tmp_path / "mirror/me/code.git"
    identity = {"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a", "GIT_COMMITTER_NAME": "a"}
    identity["GIT_COMMITTER_EMAIL"] = "a"
    own = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "me.key", "GIT_CONFIG_VALUE_0": "mine"}
    base = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), **own, **identity}
    variables = {**base, **Mirrors(git=str(tmp_path / "mirror")).git_variables(base)}

    def git(*words: str) -> str:
        done = subprocess.run(
            ["git", *words], env=variables, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "--quiet", "--bare", str(bare))
    commit = git("-C", str(bare), "commit-tree", "-m", "one", git("-C", str(bare), "mktree"))
    git("-C", str(bare), "update-ref", "refs/heads/main", commit)
    listed = git("ls-remote", "https://github.com/me/code.git", "refs/heads/main")
    assert listed == f"{commit}\trefs/heads/main"
    assert git("config", "me.key") == "mine"


def test_a_folder_of_wheels_replaces_every_index() -> None:
    offline = Mirrors(pip="https://m/simple", torch="https://t/whl", wheels="/pack/wheels")
    assert offline.pip_words == ("--no-index", "--find-links", "/pack/wheels")
    assert offline.torch_words == ()
    assert offline.variables({}) == {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "/pack/wheels",
        "PIP_CONFIG_FILE": os.devnull,
    }


def test_the_hubs_libraries_get_their_variables(settings: Path) -> None:
    settings.write_text("huggingface: https://hf.site/\nmodelscope: https://ms.site\n")
    assert read({}, {"HF_ENDPOINT": "https://exported"}).hub_variables() == {
        "HF_ENDPOINT": "https://exported",
        "MODELSCOPE_ENDPOINT": "https://ms.site",
        "MODELSCOPE_DOMAIN": "ms.site",
    }


def test_the_index_of_an_image_has_no_password() -> None:
    public = read({}, {"PIP_INDEX_URL": "https://host/simple"}).for_image()
    assert public.pip_words == ("--index-url", "https://host/simple")
    with raising("mirrors.image_secret") as caught:
        read({}, {"PIP_INDEX_URL": "https://u:hunter2@host/simple"}).for_image()
    assert "hunter2" not in str(caught.value)


# each kind of mirror: its option, its variable, an address as it is kept, and a text that is none
KINDS = {
    "pip": ("--index-url", "PIP_INDEX_URL", "https://m/simple/", "m/simple"),
    "torch": ("--torch-index", "GAUDI_LAUNCH_TORCH_INDEX", "file:///wheels/", "m/whl"),
    "registry": ("--registry", "GAUDI_LAUNCH_REGISTRY", "m:5000/p", "m:x"),
    "git": ("--git-mirror", "GAUDI_LAUNCH_GIT_MIRROR", "ssh://git@m/p", "m"),
    "huggingface": ("--hf-endpoint", "HF_ENDPOINT", "https://m", "file:///m"),
    "modelscope": ("--modelscope-endpoint", "MODELSCOPE_ENDPOINT", "http://m", "m"),
}


@pytest.mark.parametrize("name", KINDS)
def test_each_mirror_comes_from_its_option_its_variable_or_the_file(
    name: str, settings: Path
) -> None:
    option, variable, address, _ = KINDS[name]
    chosen: dict[str, Any] = {name: address}
    kept = replace(NONE, **chosen)
    assert read({name: address}, {}) == replace(kept, options=(option,))
    exported = read({}, {variable: address})
    assert exported == replace(kept, pip_by_itself=name == "pip")
    assert read({}, {variable: ""}) == NONE
    settings.write_text(f"{name}: {address}\n")
    assert read({}, {}) == kept
    assert read(None, {}) == kept


@pytest.mark.parametrize("name", [name for name in KINDS if name != "pip"])
def test_a_refusal_names_the_option_and_an_example(name: str, settings: Path) -> None:
    option, variable, _, wrong = KINDS[name]
    example = {
        "torch": "https://HOST/whl/cpu",
        "registry": "HOST:5000/PATH",
        "git": "https://HOST/github/",
        "huggingface": "https://hf-mirror.com",
        "modelscope": "https://www.modelscope.cn",
    }[name]
    values = {"found": wrong, "example": example}
    with refused("mirrors.address_bad", ExitCode.USAGE, where=option, **values):
        read({name: wrong}, {})
    settings.write_text(f"{name}: {wrong}\n")
    with refused("mirrors.address_bad", ExitCode.USAGE, where=f"{name} ({settings})", **values):
        read({}, {})
    if name not in ("huggingface", "modelscope"):
        with refused("mirrors.address_bad", ExitCode.USAGE, where=variable, **values):
            read({}, {variable: wrong})


def test_a_refusal_of_an_address_with_a_password_names_where_it_is(settings: Path) -> None:
    settings.write_text("torch: https://u:hunter2@host/whl\n")
    with refused("mirrors.address_secret", ExitCode.USAGE, where=f"torch ({settings})"):
        read({}, {})


@pytest.mark.parametrize(
    ("content", "why"),
    [(b"a: b: c\n", "YAML"), (b"- a\n", "list"), (b"torch: [1]\n", "torch"), (b"\xff\n", "utf-8")],
)
def test_a_refused_file_says_what_it_is(settings: Path, content: bytes, why: str) -> None:
    settings.write_bytes(content)
    with pytest.raises(LaunchError) as caught:
        read({}, {})
    assert why in caught.value.text.values["why"]


def test_an_empty_file_is_no_mirror(settings: Path) -> None:
    settings.write_text("# none yet\n")
    assert read({}, {}) == NONE


def test_a_mirror_of_pytorch_is_an_index_and_a_page_of_links() -> None:
    assert Mirrors(torch="https://t/whl").torch_words == (
        "--extra-index-url",
        "https://t/whl",
        "--find-links",
        "https://t/whl",
    )


@pytest.mark.parametrize(("before", "number"), [("", 0), ("2", 2), ("x", 0), ("²", 0)])
def test_git_gets_the_mirror_after_its_other_settings(before: str, number: int) -> None:
    found = Mirrors(git="https://m/github").variables({"GIT_CONFIG_COUNT": before})
    assert found == {
        "GIT_CONFIG_COUNT": str(number + 1),
        f"GIT_CONFIG_KEY_{number}": "url.https://m/github/.insteadOf",
        f"GIT_CONFIG_VALUE_{number}": "https://github.com/",
    }
