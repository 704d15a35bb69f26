"""The steps that install an engine's pinned code into a Python.

They are the same for an environment and for an image. No step needs a shell, and each can be run
again after it was interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gaudi_launch.core.base.mirrors import NONE, Mirrors
from gaudi_launch.core.engines.install.step_runner import InstallStep
from gaudi_launch.core.engines.releases import Code, Release, constraints_of
from gaudi_launch.core.planning.request import LIBFABRIC

# HabanaAI/hccl_demo@f623d69:README.md, "Host NIC Scale-Out Setup"
_LIBFABRIC = "1.20.0"
_TARBALL = f"https://github.com/ofiwg/libfabric/releases/download/v{_LIBFABRIC}/libfabric-{_LIBFABRIC}.tar.bz2"
_WRAPPER = Code("HabanaAI/hccl_ofi_wrapper")
_DEMO = Code("HabanaAI/hccl_demo", commit="f623d692a4e9eee3fa602a6dfe69190b617003b8")
_WRAPPER_FILE = "libhccl_ofi_wrapper.so"
_HABANA_LIBRARIES = "/usr/lib/habanalabs"
# writes its second argument to the file of the first one
_WRITE = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"


@dataclass(frozen=True)
class SetupExtras:
    """The optional parts of an installation.

    They are mirrors, Pillow-SIMD for vision models, and the libraries for host network cards
    between machines and boards. ``constraints`` is the file of the versions that pip takes
    unless ``unpinned``.
    """

    mirrors: Mirrors = NONE
    vision: bool = False
    scale_out: bool = False
    pip_options: tuple[str, ...] = field(default=())
    unpinned: bool = False
    constraints: str = ""


def code_steps(
    release: Release, python: str, source: str, extras: SetupExtras
) -> list[InstallStep]:
    """Return the commands that install a vLLM engine with ``python``.

    Its code goes below the folder ``source``. The forks: Gaudi2E inference manual 1.21, 1.4, and
    HabanaAI/vllm-fork@277a33cd9:README_GAUDI.md; their extension is pinned last, because the
    requirements name a branch that moves. vllm-gaudi: vllm-project/vllm-gaudi@091bbadd:
    docs/getting_started/installation.md, upstream vLLM first, without a device backend and without
    its torch.
    """
    mirror = extras.mirrors.pip_words
    versions = ("--constraint", extras.constraints) if extras.constraints else ()
    pip = (python, "-m", "pip", "install", *extras.pip_options, *mirror, *versions)
    steps: list[InstallStep] = []
    if release.upstream is not None:
        folder, upstream = _checkout(release.upstream, source)
        needs = f"{folder}/{release.build_requirements}"
        steps += [
            *upstream,
            InstallStep("setup.without_torch", ("sed", "-i", "/^torch/d", needs)),
            InstallStep("setup.requirements", (*pip, "--requirement", needs)),
            InstallStep(
                "setup.upstream",
                (
                    "env",
                    "VLLM_TARGET_DEVICE=empty",
                    *pip,
                    "--no-build-isolation",
                    "--editable",
                    folder,
                ),
            ),
        ]
    folder, code = _checkout(release.code, source)
    steps += code
    if release.upstream is not None:
        steps.append(
            InstallStep("setup.engine", (*pip, "--no-build-isolation", "--editable", folder))
        )
    else:
        steps += [
            InstallStep(
                "setup.requirements", (*pip, "--requirement", f"{folder}/requirements-hpu.txt")
            ),
            InstallStep(
                "setup.engine", ("env", "VLLM_TARGET_DEVICE=hpu", *pip, "--editable", folder)
            ),
        ]
    if release.extension is not None and release.extension.commit:
        pinned = f"git+{release.extension.address}@{release.extension.commit}"
        steps.append(
            InstallStep("setup.extension", (*pip, "--no-deps", "--force-reinstall", pinned))
        )
    if extras.vision:
        # Gaudi2E inference manual 1.21, 1.4: built with AVX2
        steps += [
            InstallStep("setup.no_pillow", (python, "-m", "pip", "uninstall", "--yes", "pillow")),
            InstallStep(
                "setup.pillow_simd",
                ("env", "CC=cc -mavx2", *pip, "--upgrade", "--force-reinstall", "pillow-simd"),
            ),
        ]
    if extras.scale_out:
        steps += scale_out_steps(source)
    return steps


def _checkout(code: Code, source: str) -> tuple[str, list[InstallStep]]:
    """Return the steps of a repository at its commit.

    `git init` and `git fetch` can be run again where `git clone` cannot.
    """
    folder = f"{source}/{code.repository.rpartition('/')[2]}"
    git = ("git", "-C", folder)
    steps = [
        InstallStep("setup.folder", ("git", "init", "--quiet", folder)),
        InstallStep("setup.fetch", (*git, "fetch", "--tags", code.address, code.branch or "HEAD")),
        InstallStep(
            "setup.checkout", (*git, "checkout", "--quiet", "--detach", code.commit or "FETCH_HEAD")
        ),
    ]
    return folder, steps


def scale_out_steps(source: str) -> list[InstallStep]:
    """Return the steps of libfabric, HCCL's wrapper and the demo that tests both.

    They are for jobs over host network cards: several boards of a PCIe box, several machines.
    HabanaAI/hccl_demo@f623d69:README.md. They write to /opt and /usr/lib/habanalabs.
    """
    archive, tree = f"{source}/libfabric.tar.bz2", f"{source}/libfabric-{_LIBFABRIC}"
    folder, wrapper = _checkout(_WRAPPER, source)
    # where the doctor looks for it
    demo, demo_code = _checkout(_DEMO, "/opt")
    return [
        InstallStep("setup.libfabric_get", ("wget", "-O", archive, _TARBALL)),
        InstallStep("setup.libfabric_unpack", ("tar", "-xf", archive, "-C", source)),
        InstallStep(
            "setup.libfabric_configure",
            (
                "env",
                "-C",
                tree,
                "./configure",
                f"--prefix={LIBFABRIC}",
                "--with-synapseai=/usr",
            ),
        ),
        InstallStep("setup.libfabric_make", ("make", "-C", tree, "-j8", "install")),
        *wrapper,
        InstallStep(
            "setup.wrapper_make", ("env", f"LIBFABRIC_ROOT={LIBFABRIC}", "make", "-C", folder)
        ),
        InstallStep(
            "setup.wrapper_place",
            ("cp", f"{folder}/{_WRAPPER_FILE}", f"{_HABANA_LIBRARIES}/{_WRAPPER_FILE}"),
        ),
        InstallStep("setup.ldconfig", ("ldconfig",)),
        *demo_code,
        InstallStep("setup.demo_make", ("make", "-C", demo)),
    ]


def dockerfile(release: Release, extras: SetupExtras) -> str:
    """Return a Dockerfile that needs no context: the bare image, then the same steps.

    The constraints file is written into the image, so that pip takes the same versions there.
    """
    import json

    source = "/opt/gaudi-launch"
    pins = None if extras.unpinned else constraints_of(release)
    constraints = f"{source}/constraints.txt" if pins is not None else ""
    mirrors = extras.mirrors.for_image()
    inside = replace(
        extras, mirrors=mirrors, pip_options=("--no-cache-dir",), constraints=constraints
    )

    def run(words: Sequence[str]) -> str:
        # the form without a shell; a Dockerfile's variables are not replaced in it
        return f"RUN {json.dumps(list(words), ensure_ascii=False)}"

    lines = [f"FROM {mirrors.image(release.bare_image or '')}"]
    # a variable of the build alone: the image does not keep it
    lines += [f"ARG {name}={value}" for name, value in mirrors.git_variables({}).items()]
    lines.append(run(("mkdir", "-p", source)))
    if pins is not None:
        # the lines of a constraints file without its head
        listed = Path(pins).read_text(encoding="utf-8").splitlines(keepends=True)
        versions = "".join(line for line in listed if not line.startswith("#"))
        lines.append(run(("python3", "-c", _WRITE, constraints, versions)))
    lines += [run(step.argv) for step in code_steps(release, "python3", source, inside)]
    if extras.scale_out:
        lines.append(f"ENV LD_LIBRARY_PATH={LIBFABRIC}/lib:{_HABANA_LIBRARIES}:$LD_LIBRARY_PATH")
    return (
        "\n".join([*lines, 'ENTRYPOINT ["python3", "-m", "vllm.entrypoints.openai.api_server"]'])
        + "\n"
    )
