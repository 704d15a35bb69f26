"""The needs of a model before its engine can start.

They are weights, their conversion, measurements, and disk space. They are only looked for here.
"""

from __future__ import annotations

import logging
import shutil
from dataclasses import dataclass, field, replace
from pathlib import Path

from gaudi_launch.core.base.errors import ExitCode, LaunchError
from gaudi_launch.core.base.messages import Message
from gaudi_launch.core.engines.detect import Installed
from gaudi_launch.core.engines.registry import check_engine
from gaudi_launch.core.host.accelerators import product_of
from gaudi_launch.core.host.hardware import Host
from gaudi_launch.core.launch.setup_steps import Room, SetupFacts, SetupStep, needed_bytes, steps
from gaudi_launch.core.models.config import looks_like_hub_id
from gaudi_launch.core.models.fp8 import measurements
from gaudi_launch.core.models.fp8.conversion_record import CONVERTED
from gaudi_launch.core.models.fp8.measurements import clear_stale
from gaudi_launch.core.models.fp8.quant_config import QuantFile
from gaudi_launch.core.models.hub.local import find_local, folder_for
from gaudi_launch.core.models.model import Model, Published
from gaudi_launch.core.models.sizing import WEIGHT_BYTES
from gaudi_launch.core.planning import profiles
from gaudi_launch.core.planning.effects import with_overrides
from gaudi_launch.core.planning.engine import Engine
from gaudi_launch.core.planning.known_model import known_model
from gaudi_launch.core.planning.profiles import Profile, match
from gaudi_launch.core.planning.request import Request

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Provision:
    """The result of the search.

    The steps, the QUANT_CONFIG, the error if a required one is missing (``lacks``), and whether
    consent to the model's code is missing (``code``).
    """

    facts: SetupFacts
    steps: tuple[SetupStep, ...] = ()
    quant: QuantFile | None = None
    published: Published | None = None
    generation: str = "g2"
    lacks: LaunchError | None = None
    code: LaunchError | None = None
    known: Model = field(default_factory=lambda: Model("", ""), repr=False)

    def planned(self, request: Request) -> Model:
        """Return the model that will be served, by its facts so far."""
        return replace(self.known, path=request.model)

    def request_for(self, request: Request) -> Request:
        """Return the request with the folder that will be served and the QUANT_CONFIG."""
        final = self.facts.final
        if final is None or request.model == str(final):
            return replace(request, quant_file=self.quant)
        if not self.facts.converts and self.facts.folder is None:
            # plan keeps the name of what is not on this machine yet
            return replace(request, quant_file=self.quant)
        # clients continue to use the name they know
        name = request.served_name or request.model
        return replace(request, model=str(final), served_name=name, quant_file=self.quant)

    @property
    def notes(self) -> tuple[Message, ...]:
        """Return the notes of a plan about it."""
        return tuple(error.text for error in (self.lacks, self.code) if error is not None)


def _places_of(request: Request) -> SetupFacts:
    """Return the facts of a model's folders."""
    repo = request.model
    if looks_like_hub_id(repo):
        return SetupFacts(
            repo,
            repo=repo,
            folder=find_local(repo, code=bool(request.trust_remote_code)),
            target=folder_for(repo),
            converted_target=folder_for(f"{repo}{CONVERTED}"),
        )
    folder = Path(repo).expanduser()
    return SetupFacts(repo, target=folder, converted_target=Path(f"{folder}{CONVERTED}"))


def _conversion(known: Model, facts: SetupFacts, *, on_gaudi2: bool) -> tuple[bool, bool]:
    """Return whether the weights need conversion, and whether it is done already."""
    # a folder that is not here (a plan for another machine) is used unchanged
    is_found = bool(facts.repo) or facts.target.is_dir()
    if not on_gaudi2 or known.quantization != "fp8" or not is_found:
        return False, False
    # it imports numpy
    from gaudi_launch.core.models.fp8.conversion_need import is_converted, wants_conversion

    source = facts.folder if facts.repo else facts.target
    if source is not None and not wants_conversion(source):
        return False, False
    return True, is_converted(facts.converted_target)


def look(
    request: Request,
    host: Host,
    engine: Engine,
    installed: Installed | None,
    model: Model | None = None,
) -> Provision:
    """Search for what exists; ``model`` is the request's where it was read already.

    Changes nothing. Raises LaunchError for a file that the user named and that
    cannot be used.
    """
    facts = _places_of(request)
    known = with_overrides(model or known_model(request.model, must_exist=False), request.args)
    profile = match(known)
    generation = generation_of(host)
    wanted = None
    if engine.innermost.needs_quant_file(request, known):
        wanted = _query(request, known, profile, generation, engine, installed)
    quant, published, lacks = _quant(request, wanted)
    # Ray Serve decides nothing about the model: the inner engine does
    on_gaudi2 = engine.innermost.needs_gaudi2_range and generation == "g2"
    converts, converted = _conversion(known, facts, on_gaudi2=on_gaudi2)
    written = [facts.converted_target]
    if facts.repo:
        written.insert(0, facts.target)
    uses_installed = installed is not None and not engine.in_container
    facts = replace(
        facts,
        weight_bytes=_weight_bytes(known),
        converts=converts,
        converted=converted,
        measured=quant is not None and not quant.missing,
        engine=engine.identity.label if uses_installed else "",
        installed=_is_installed(engine, installed),
        there=tuple((path, _size(path)) for path in written),
    )
    if published:
        place = measurements.downloaded_folder(published.repo)
        facts = replace(facts, measurements=published.repo, measurements_target=place)
    if profile and profile.disk_gb and not known.is_only_a_name:
        facts = replace(facts, disk_bytes=profile.disk_gb * 10**9)
    facts = replace(facts, rooms=_rooms(facts, here=host.origin == "live"))
    if engine.identity.simulated:
        # no weights are read, and no code of the model runs
        return Provision(facts, (), generation=generation, known=known)
    return Provision(
        facts,
        steps(facts),
        quant,
        published,
        generation,
        lacks,
        _code(request, known, profile, engine),
        known,
    )


def _code(
    request: Request, known: Model, profile: Profile | None, engine: Engine
) -> LaunchError | None:
    """Return the model's code, by its profile, if there is no consent to it.

    config.json is not here yet.
    """
    brings = known.remote_code is None and profile is not None and profile.facts.get("remote_code")
    if not brings or request.trust_remote_code or engine.innermost.support(known).own_class:
        return None
    return LaunchError("plan.remote_code", ExitCode.MODEL, model=known.name)


def _is_installed(engine: Engine, installed: Installed | None) -> bool:
    try:
        check_engine(engine, installed)
    except LaunchError as error:
        _log.debug("the engine is not usable: %s", error)
        return False
    return True


def generation_of(host: Host) -> str:
    """Return g2 or g3 as in the calibration scripts.

    The 1.21 start script assumes g2.
    """
    if product_of(host).startswith("gaudi3"):
        return "g3"
    return "g2"


def _quant(
    request: Request, wanted: measurements.MeasurementQuery | None
) -> tuple[QuantFile | None, Published | None, LaunchError | None]:
    """Return the QUANT_CONFIG, its published measurements, and the error without one."""
    if wanted is None:
        return None, None, None
    try:
        found = measurements.find(wanted)
    except LaunchError as error:
        if Path(str(error.text.values["path"])).exists():
            raise
        # the user may write the named file later, or have it on the other machine
        return None, None, error
    if found is None:
        return None, None, _without_measurements(request.model, wanted)
    if found.origin == "downloaded":
        return found, wanted.published, None
    if found.missing:
        return found, None, incomplete(found, request.model, wanted.cards)
    return found, None, None


def _query(
    request: Request,
    known: Model,
    profile: Profile | None,
    generation: str,
    engine: Engine,
    installed: Installed | None,
) -> measurements.MeasurementQuery:
    """Return the search for the measurements of a model on the cards of a request."""
    inside = engine.innermost
    cards = engine.cards(request) or len(request.modules or ()) or 1
    calibration = inside.calibration
    family = calibration.family if calibration is not None else inside.profile_key
    published, checkout = None, None
    # published measurements, and those in the engine's sources, are of the fork's modules
    if calibration is not None and calibration.published:
        published = profiles.published_for(profile, known.name, generation, cards)
        if installed is not None:
            checkout = installed.facts.get("source")
    return measurements.MeasurementQuery(
        model=known.name,
        cards=cards,
        generation=generation,
        named=request.quant_config,
        exported=request.environment.get("QUANT_CONFIG"),
        prefix=request.environment.get(measurements.PREFIX, ""),
        profile_file=_quant_file_of(profile, inside.profile_key),
        published=published,
        checkout=checkout,
        family=family,
    )


def _quant_file_of(profile: Profile | None, key: str) -> str | None:
    """Return the QUANT_CONFIG that a profile has for an engine; None without one."""
    if profile is None:
        return None
    for _, name, value, _, _ in profiles.profile_settings(profile, key, "fp8"):
        if name == "QUANT_CONFIG":
            return value
    return None


def _without_measurements(model: str, wanted: measurements.MeasurementQuery) -> LaunchError:
    """Return the error for a model without measurements for its cards."""
    numbers = measurements.calibrated_for(wanted.model, wanted.generation, wanted.family)
    place = measurements.calibrated_folder(
        wanted.model, wanted.generation, wanted.cards, wanted.family
    )
    return LaunchError(
        "quant.none",
        ExitCode.MODEL,
        model=model,
        name=wanted.model,
        cards=wanted.cards,
        folder=str(place),
        others=", ".join(map(str, numbers)) or "-",
    )


def incomplete(found: QuantFile, model: str, cards: int) -> LaunchError:
    """Return the error of a QUANT_CONFIG with missing measurements."""
    return LaunchError(
        "quant.measurements_missing",
        ExitCode.MODEL,
        path=found.path,
        model=model,
        cards=cards,
        count=len(found.missing),
        first=found.missing[0],
    )


def _weight_bytes(known: Model) -> int | None:
    if known.weight_bytes:
        return known.weight_bytes
    each = WEIGHT_BYTES.get(known.quantization or known.dtype or "bfloat16")
    if known.parameters and each:
        return int(known.parameters * each)
    return None


def _size(folder: Path) -> int:
    """Return the bytes of the files below a folder; 0 without one."""
    total = 0
    for path in folder.rglob("*") if folder.is_dir() else ():
        try:
            total += path.stat().st_size if path.is_file() and not path.is_symlink() else 0
        except OSError:
            continue
    return total


def clear_old_scales(provision: Provision) -> None:
    """Remove the scales of other measurements, before a launch."""
    if provision.quant is not None:
        clear_stale(provision.quant)


def check_disk(facts: SetupFacts) -> None:
    """Check the disk space that the steps need, per file system.

    Raises LaunchError (MACHINE).
    """
    for room in _rooms(facts, here=True):
        if not room.enough:
            raise LaunchError(
                "prepare.disk",
                ExitCode.MACHINE,
                model=facts.model,
                path=str(room.path),
                free=round((room.free or 0) / 1e9, 1),
                needed=round(room.needed / 1e9, 1),
            )


def _rooms(facts: SetupFacts, here: bool) -> tuple[Room, ...]:
    """Return the bytes that the steps will write, per file system.

    Another machine's disks are unknown.
    """
    needed = needed_bytes(facts)
    if not here:
        total = sum(needed.values())
        if not total:
            return ()
        return (Room(next(iter(needed)), total),)
    disks: dict[int, tuple[Path, int]] = {}
    for folder, count in needed.items():
        place = next(
            (path for path in (folder, *folder.absolute().parents) if path.exists()), Path("/")
        )
        device = place.stat().st_dev
        _, before = disks.get(device, (place, 0))
        disks[device] = (place, before + count)
    return tuple(
        Room(place, count, shutil.disk_usage(place).free) for place, count in disks.values()
    )
