"""``gaudi-launch pull``: fetch a model, complete, verified, resumable.

Sources are Hugging Face and ModelScope.
"""

from __future__ import annotations

from pathlib import Path

import typer

from gaudi_launch.cli.command_app import JSON, CommandApp
from gaudi_launch.cli.console import emit_json, size_text
from gaudi_launch.cli.record_options import ModelCommand
from gaudi_launch.cli.terminal import Terminal
from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import text

app = CommandApp()


@app.command(cls=ModelCommand)
def pull(
    repo: str = typer.Argument(..., metavar="OWNER/NAME"),
    source: str = typer.Option(
        "auto",
        "--from",
        metavar="hf|modelscope|auto",
        help="hf, modelscope or auto (the faster one).",
    ),
    to: Path | None = typer.Option(
        None, "--to", metavar="DIR", help="Target folder (default: the XDG data folder)."
    ),
    revision: str = typer.Option("", "--revision", metavar="REV", help="Branch, tag or commit."),
    repo_type: str = typer.Option("model", "--repo-type", metavar="model|dataset"),
    everything: bool = typer.Option(
        False, "--all", help="Download every file, not only those for serving."
    ),
    code: bool = typer.Option(
        False, "--trust-remote-code", help="Also download the model's Python files."
    ),
    verify: bool = typer.Option(
        False, "--verify", help="Check every file's hash and download again those that differ."
    ),
    hf_endpoint: str | None = typer.Option(
        None, "--hf-endpoint", metavar="URL", help="A mirror of Hugging Face (else HF_ENDPOINT)."
    ),
    modelscope_endpoint: str | None = typer.Option(
        None,
        "--modelscope-endpoint",
        metavar="URL",
        help="A mirror of ModelScope (else MODELSCOPE_ENDPOINT).",
    ),
    as_json: bool = JSON,
) -> None:
    """Download a model. Run again after an interruption to resume."""
    import os

    from gaudi_launch.core.base import mirrors
    from gaudi_launch.core.launch import model_setup
    from gaudi_launch.core.models.config import looks_like_hub_id, refuse_address

    refuse_address(repo)
    if not looks_like_hub_id(repo):
        raise LaunchError("pull.name", ExitCode.USAGE, found=repo)
    if source not in ("hf", "modelscope", "auto"):
        raise LaunchError("pull.source", ExitCode.USAGE, found=source)
    if repo_type not in ("model", "dataset"):
        raise LaunchError("pull.repo_type", ExitCode.USAGE, found=repo_type)
    endpoints = {"huggingface": hf_endpoint, "modelscope": modelscope_endpoint}
    os.environ.update(mirrors.read(endpoints).hub_variables())
    wanted = model_setup.Wanted(repo, source, to, revision, repo_type, everything, code, verify)
    done = model_setup.fetch(wanted, Terminal())
    size = sum(file.size for file in done.files)
    if as_json:
        return emit_json(
            {
                "schema": 1,
                "repo": repo,
                "source": done.listing.source,
                "revision": done.listing.revision,
                "folder": str(done.folder),
                "files": len(done.files),
                "bytes": size,
                "fetched": done.fetched,
                "unread": done.unread,
            }
        )
    print(text("pull.done", folder=str(done.folder), count=len(done.files), size=size_text(size)))
    if done.unread:
        print(text("pull.unread", count=done.unread))
    return None
