"""A plan with its recipe cache: its folder, its present graphs, and their effect."""

from __future__ import annotations

import logging
import os
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from gaudi_launch.core.base.messages import message
from gaudi_launch.core.buckets.bucket_list import Bucket, Buckets
from gaudi_launch.core.buckets.warmup_time import Estimate, per_graph
from gaudi_launch.core.host.config_files import mount_kind
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.planning.plan import Command, Plan, Setting, Source
from gaudi_launch.core.planning.request import Request
from gaudi_launch.core.recipes import cache_root
from gaudi_launch.core.recipes.key import KeyParts, parts_of
from gaudi_launch.core.recipes.size_limits import size_limit

# /proc/mounts names; fuse.* covers sshfs, ceph-fuse, juicefs, s3fs and the like
_NETWORK = {
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "ceph",
    "glusterfs",
    "lustre",
    "gpfs",
    "beegfs",
    "afs",
    "9p",
}
_LOCAL_FUSE = {"fuse.fuse-overlayfs", "fuseblk", "fusectl"}


def is_network(kind: str) -> bool:
    """Return True for a type of file system without reliable locks."""
    return kind in _NETWORK or (kind.startswith("fuse") and kind not in _LOCAL_FUSE)


def file_system(path: Path, machine_root: Path = Path("/")) -> str:
    """Return the file system type of a path (``ext4``, ``nfs4``), "" when unknown."""
    try:
        mounts = (machine_root / "proc/mounts").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        _log.debug("the mounts are not read: %s", error)
        return ""
    return mount_kind(mounts, os.fspath(path.absolute())) or ""


_log = logging.getLogger(__name__)

VARIABLE = "PT_HPU_RECIPE_CACHE_CONFIG"
_NONE = Buckets([], [])
# free bytes of a disk that is not read
_UNLIMITED = 1 << 50


@dataclass(frozen=True)
class Cached:
    """A plan with the folder of its graphs.

    ``root`` is the cache's folder, ``local`` the copy that the engine works on when that is a
    network file system.
    """

    plan: Plan
    parts: KeyParts
    root: Path
    use: cache_root.Use
    local: Path | None = None

    @property
    def job(self) -> CacheJob:
        """Return what a run of the engine needs of this."""
        plan, because = self.plan, ""
        buckets = plan.buckets or _NONE
        if self.use.state != "hit":
            because = self.use.because.render()
        return CacheJob(
            root=self.root,
            parts=self.parts,
            prompt=buckets.prompt,
            decode=buckets.decode,
            local=self.local,
            because=because,
            skips_warmup="VLLM_SKIP_WARMUP" in plan.command.env,
        )


@dataclass(frozen=True)
class CacheJob:
    """The cache of one run of an engine, as a record that can be stored.

    ``because`` is the reason why graphs are compiled ("" when all are cached).
    """

    root: Path
    parts: KeyParts
    prompt: list[Bucket]
    decode: list[Bucket]
    local: Path | None = None
    because: str = ""
    skips_warmup: bool = False

    @property
    def buckets(self) -> Buckets:
        return Buckets(self.prompt, self.decode)


def with_cache(
    plan: Plan,
    request: Request,
    host: Host,
    cache_dir: Path,
    *,
    look: bool = True,
    machine_root: Path = Path("/"),
) -> Cached | None:
    """Return the plan with its cache; None where there is none to manage.

    Return None for reference tuning (the scripts' value is kept), an engine without cards or in a
    container (which writes there as another user; -c gives it a separate folder), and a user who
    exported the variable. ``look`` False plans for another machine: nothing on this one's disk is
    read.
    """
    exported = request.environment.get(VARIABLE)
    if request.tuning == "reference" or not plan.placement.modules:
        return None
    if plan.container is not None or exported:
        return None
    root = cache_dir / "recipes"
    if request.cache_dir:
        root = Path(request.cache_dir).expanduser().absolute()
    wanted = plan.buckets or _NONE
    if not look:
        parts = parts_of(plan, host, None)
        why = message("cache.not_looked")
        use = cache_root.Use("miss", parts.key, root / parts.key, wanted, why)
        return Cached(_rewrite(plan, request, use, _Place(root)), parts, root, use)
    parts = parts_of(plan, host, _quant_config(plan))
    use = cache_root.look_up(root, parts, wanted)
    local = None
    if is_network(file_system(root, machine_root)):
        local = cache_dir / "recipes-local" / parts.key
    place = _Place(root, local, _free(local or root), use.state)
    return Cached(_rewrite(plan, request, use, place), parts, root, use, local)


def without_cache(command: Command) -> Command:
    """Return the command of an engine that keeps no compiled graphs."""
    return replace(
        command, env={name: value for name, value in command.env.items() if name != VARIABLE}
    )


@dataclass(frozen=True)
class _Place:
    """The folders of a cache, the free bytes of its disk, and what a plan says of it."""

    root: Path
    local: Path | None = None
    free: int = _UNLIMITED
    state: str = "unknown"


def _rewrite(plan: Plan, request: Request, use: cache_root.Use, place: _Place) -> Plan:
    """Return the plan with the cache's variable."""
    root, local = place.root, place.local
    held = measured = 0
    if use.ledger is not None:
        held, measured = use.ledger.bytes, use.ledger.buckets.graphs
    graphs = (plan.buckets or _NONE).graphs
    mib, reason, too_small = size_limit(graphs, place.free, held, measured)
    folder = local or use.folder
    source: Source = "computed"
    if request.cache_dir:
        source = "flag"
    setting = Setting(
        VARIABLE,
        f"{folder},false,{mib}",
        "env",
        source,
        reason,
        "docs: Runtime Environment Variables",
    )
    settings = [s for s in plan.settings if (s.kind, s.name) != ("env", VARIABLE)]
    warnings = list(plan.warnings)
    if too_small:
        warnings.append(message("cache.limit_small", path=str(folder), mib=mib))
    if local is not None:
        warnings.append(message("cache.network", path=str(root), local=str(local)))
    if plan.skips_warmup and use.state != "hit":
        warnings.append(message("cache.skip_incomplete", new=use.new.graphs))
    return replace(
        plan,
        settings=(*settings, setting),
        command=replace(plan.command, env={**plan.command.env, VARIABLE: setting.value or ""}),
        warnings=tuple(warnings),
        estimate=_estimate(plan, use),
        cache={
            "state": place.state,
            "key": use.key,
            "folder": str(use.folder),
            "because": use.because.render(),
            "new_graphs": use.new.graphs,
        },
    )


def _estimate(plan: Plan, use: cache_root.Use) -> Estimate | None:
    """Return the estimate with warm graphs read from the cache, not compiled.

    The shares are published ones.
    """
    graphs = (plan.buckets or _NONE).graphs
    if plan.estimate is None or use.state == "miss" or not graphs:
        return plan.estimate
    new = use.new.graphs / graphs
    methods = {s.value for s in plan.settings if s.name == "--quantization"}
    dtype = None
    if "inc" in methods:
        dtype = "fp8"
    share = per_graph(dtype, True).low_seconds / per_graph(dtype, False).low_seconds
    factor = new + (1 - new) * share
    return replace(
        plan.estimate,
        low_seconds=plan.estimate.low_seconds * factor,
        high_seconds=plan.estimate.high_seconds * factor,
        cached=graphs - use.new.graphs,
    )


def _quant_config(plan: Plan) -> bytes | None:
    path = plan.command.env.get("QUANT_CONFIG")
    try:
        if not path:
            return None
        return Path(path).read_bytes()[: 1 << 20]
    except OSError as error:
        _log.debug("the quantisation file is not read: %s", error)
        return None


def _free(folder: Path) -> int:
    """Return the free bytes of a folder's disk."""
    for place in (folder, *folder.parents):
        try:
            return shutil.disk_usage(place).free
        except OSError as error:
            _log.debug("the free space is not known: %s", error)
            continue
    return 0
