"""The configuration of a run: all that decides its result, and where its data came from.

`RunConfig` is what ``config.json`` holds, and the whole of it ``study.json`` beside a run with a
guarantee: this module alone writes and reads both, for every engine.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import numpy as np

from veilmap._util import checks, files, reading
from veilmap._util.ids import Id
from veilmap._util.options import option
from veilmap._util.plain import DAMAGED, differences, from_plain, plain, to_plain
from veilmap.data.folders import Crowd
from veilmap.errors import ConfigurationError, DataError, RunFolderError, VeilmapError
from veilmap.federation.model import Calibrated, Model
from veilmap.federation.participation import Participation
from veilmap.federation.public import Public
from veilmap.federation.steps import StepRule
from veilmap.federation.transcript import ServerSees, checked_sees
from veilmap.geometry.grid import Grid
from veilmap.geometry.tiling import Tiling
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import Mechanism, is_known

# Of run folders; another number was written by another version.
FORMAT = 9

# Its file in the folder of a run, and in that of a study, which is no run.
RUN, STUDY = "config.json", "study.json"

_USERS_PER_DIGEST = 1000


@plain
@dataclass(frozen=True)
class Fingerprint:
    """What tells one crowd's measurements from another's; where it may be said, by a digest."""

    users: int
    links: int | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        for count in (self.users, self.links or 0):
            if not isinstance(count, int) or count < 0:
                raise DataError(f"a fingerprint counts users and links, not {count!r}")

    @classmethod
    def of(cls, data: Crowd) -> "Fingerprint":
        """The same for a table and for a folder that holds it in parts."""
        digest = sha256()
        for links in data.blocks(_USERS_PER_DIGEST):
            for values in (links.offsets, links.user_xyz, links.bs_xyz, links.gain_db):
                digest.update(np.ascontiguousarray(values).tobytes())
            for ids in (links.bs, links.device):
                names, number = np.unique(np.asarray(ids), return_inverse=True)
                digest.update(json.dumps([str(name) for name in names]).encode())
                digest.update(number.astype(np.int64).tobytes())
        return cls(len(data.users), len(data), digest.hexdigest())


@plain
@dataclass(frozen=True)
class RunConfig:
    """All that decides a run's result, as `train` takes it, and where its data came from.

    The mechanism's noise is fixed; a caller's own step rule is read back as its description.
    """

    grid: Grid
    mechanism: Mechanism
    server_sees: ServerSees
    rounds: int
    seed: int | None
    step: StepRule | Mapping[str, Any]  # of all rounds
    participation: Participation
    tiling: Tiling | None = None
    robust: bool = option(
        False, "--robust", "Leave users out whose uploads pull away from all others'."
    )
    offset_stations: tuple[Id, ...] = ()  # whose offsets are learned
    offset_devices: tuple[Id, ...] = ()
    buildings: str | None = None  # digest of the public heights that the map starts from
    antennas: str | None = None  # digest of its antenna patterns
    data: Fingerprint | None = None  # None where users take part from nodes of their own
    # Where the measurements are, as `veilmap.runs.source.Source` describes it.
    source: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        checked_sees(self.server_sees)
        for name, kind in _KINDS.items():
            if not isinstance(getattr(self, name), kind):
                raise DataError(f"the {name} of a run cannot be {getattr(self, name)!r}")
        if self.robust and (self.server_sees != "uploads" or self.tiling is not None):
            raise ConfigurationError(
                "robust needs every user's upload of the whole map: server_sees='uploads', and no"
                " tiling",
                "robust",
            )
        checks.whole("rounds", self.rounds, least=1)
        checks.whole("seed", self.seed or 0, least=0)

    @property
    def promised(self) -> bool:
        """Whether the mechanism has a guarantee."""
        return has_guarantee(self.mechanism)

    @property
    def users(self) -> int | None:
        """The number of users; None where they take part from nodes of their own."""
        return None if self.data is None else self.data.users

    @property
    def has_study(self) -> bool:
        """Whether a study stands beside the run: the users of a promise are in this process."""
        return self.promised and self.data is not None

    @property
    def attackable_rounds(self) -> int:
        """The number of rounds before those of a residual field, which no attack reads."""
        of_field: int = to_plain(self.step).get("rounds", 0)
        return self.rounds - of_field

    def knowing(self, public: Public) -> "RunConfig":
        """The same, with what of public facts decides the result."""
        heights, antennas = public.heights, public.antennas
        return replace(
            self,
            offset_stations=tuple(public.offsets.stations),
            offset_devices=tuple(public.offsets.devices),
            buildings=None if heights is None else sha256(heights.tobytes()).hexdigest(),
            antennas=None if antennas is None else sha256(antennas.as_text().encode()).hexdigest(),
        )

    def published(self) -> "RunConfig":
        """What may be published: no ε covers a digest of users' data, or where these are."""
        if not self.promised:
            return self
        return replace(self, data=self.data and Fingerprint(self.data.users), source=None)

    def settings(self) -> dict[str, Any]:
        """How the run was trained, as `train` takes it; all but its data, grid and seed.

        Antennas are part of the data: the run's map has those it was trained with.
        """
        missing = "which its folder does not hold"
        if self.buildings is not None:
            raise ConfigurationError(f"the run started from buildings, {missing}")
        if isinstance(self.step, Mapping):
            raise ConfigurationError(f"the run has a step rule of its own, {missing}")
        learned = {"stations": self.offset_stations, "devices": self.offset_devices}
        calibrated = [cast("Calibrated", name) for name, ids in learned.items() if ids]
        names = ("tiling", "mechanism", "rounds", "server_sees", "participation", "robust")
        model = Model(step=self.step, calibrate=calibrated)
        return {name: getattr(self, name) for name in names} | {"model": model}

    def differences(self, other: "RunConfig") -> list[str]:
        """What would make another result, one short phrase each; data may have moved."""
        sides = (to_plain(replace(one, source=None)) for one in (self, other))
        # As they are read back: numpy's numbers and tuples are JSON's.
        return differences(*(json.loads(json.dumps(side)) for side in sides))

    def save(self, folder: Path, name: str = RUN) -> None:
        """Write it into a folder."""
        files.write_json({"format": FORMAT} | to_plain(self), folder / name, secret=True)

    @classmethod
    def exists(cls, folder: Path, name: str = RUN) -> bool:
        """Whether a folder holds one, which makes it a run."""
        return (folder / name).exists()

    @classmethod
    def load(cls, folder: Path, name: str = RUN) -> "RunConfig":
        """Read it out of a folder, which may be anybody's."""
        path = folder / name
        if not path.exists():
            raise RunFolderError(f"{folder} holds no run: it has no {name}")
        try:
            content = dict(reading.read_json(path, follow=False))
            if content.pop("format") != FORMAT:
                raise RunFolderError(
                    f"{folder} was written by another version of veilmap; train it anew"
                )
            return cls._of(content)
        except RunFolderError:
            raise
        except (VeilmapError, *DAMAGED) as error:
            raise RunFolderError(f"{path} is damaged: {error}") from error

    @classmethod
    def _of(cls, content: dict[str, Any]) -> "RunConfig":
        """The inverse of `to_plain`, but that step and source may be of classes unknown here."""
        described, source = dict(content.pop("step")), content.pop("source")
        if not isinstance(described.get("rounds", 0), int):
            raise DataError(f"a step rule has a number of rounds, not {described['rounds']!r}")
        if not is_known(kind := str(content["mechanism"]["type"])):
            raise RunFolderError(
                f"no installed package has this run's mechanism, {files.printable(kind)}: a"
                " plug-in seems to be missing, or cannot be used"
            )
        try:
            step: Any = from_plain(described, object)
        except DataError:
            step = described
        known = from_plain(content | {"step": None, "source": None}, cls)
        return replace(known, step=step, source=None if source is None else dict(source))


_KINDS: dict[str, Any] = {
    "rounds": int,
    "seed": int | None,
    "grid": Grid,
    "mechanism": Mechanism,
    "participation": Participation,
    "tiling": Tiling | None,
    "robust": bool,
    "offset_stations": tuple,
    "offset_devices": tuple,
    "buildings": str | None,
    "antennas": str | None,
    "data": Fingerprint | None,
}
