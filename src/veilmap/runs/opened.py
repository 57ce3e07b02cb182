"""One opened run, for the command line, reports and the page alike."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from veilmap import ingest
from veilmap._util import limits, reading
from veilmap._util.options import options_of
from veilmap.auditing.exposure import Witness
from veilmap.data.folders import Crowd, MeasurementFolder
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, DataError, PrivacyError, RunFolderError, VeilmapError
from veilmap.federation import Run, Transcript, history
from veilmap.federation.config import Fingerprint, RunConfig
from veilmap.federation.history import HistoryRow, last_mae
from veilmap.federation.messages import ClientId
from veilmap.federation.run import transcript_of
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import StudyFolder, unpublished
from veilmap.federation.transcript import SeenRound, SeenSum
from veilmap.model.evaluation import mean_absolute_error
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise, has_guarantee, promise
from veilmap.privacy.mechanisms import Mechanism, PrivateMechanism, author_of
from veilmap.runs import command
from veilmap.runs.result import OpenResult
from veilmap.runs.source import Source
from veilmap.scenes.scene import Scene

_CACHED_ROUNDS = 4


class OpenRun(OpenResult):
    """A run's folder as data.

    ``data`` and ``test`` are measurements of the run's users and of test users, by default where
    the run says they are; those that are named must be the run's own, others may be missing. With
    a guarantee they belong to its ``study``.
    """

    kind = "run"

    def __init__(
        self, path: Path, *, data: Path | None = None, test: Path | None = None, study: bool = False
    ) -> None:
        super().__init__(path, study=study)
        self.folder = RunFolder(path)
        self._data, self._test = data, test
        if self._is_named and self.withheld:
            raise ConfigurationError(
                f"{path} has a guarantee, which does not cover its users' measurements or the"
                " map's error on them: only a study includes them, and marks them",
                "study",
            )

    # ---- what its files say

    @cached_property
    def config(self) -> RunConfig:
        """The configuration that the run was started with; of a study all of it."""
        published = self.folder.config()
        if published.promised and self._wants_study:
            return StudyFolder(self.path).config() or published
        return published

    @property
    def promised(self) -> bool:
        """Whether the run has a guarantee."""
        return self.config.promised

    @property
    def promise(self) -> Promise:
        """What is promised to the users, or why nothing is."""
        return promise(self.config.mechanism, self.spent(), self.config.seed)

    @property
    def label(self) -> str:
        """Its mechanism in a few words."""
        return label_of(self.config.mechanism, self.config.server_sees)

    @property
    def users(self) -> int | None:
        """How many take part; None where they do from nodes of their own."""
        return self.config.users

    @property
    def rounds(self) -> int:
        """Rounds asked for."""
        return self.config.rounds

    @property
    def unpublished(self) -> Path:
        """The run's study, if it has one, else its own folder."""
        return unpublished(self.path)

    @property
    def version(self) -> tuple[str, int]:
        """The newest file of the map, and when it was written."""
        final = self.path / "radio_map.nc"
        for path in (final, *sorted((self.path / "checkpoints").glob("round-*.npz"), reverse=True)):
            try:
                return path.name, path.stat().st_mtime_ns
            except OSError:
                continue
        return "none", 0

    def history(self) -> list[HistoryRow]:
        """All rounds so far."""
        path = self.path / "history.csv"
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            return []

        def read() -> list[HistoryRow]:
            rows = history.load(path)
            return StudyFolder(self.path).joined(rows) if self.study else rows

        return self._cached("history", changed, read)

    def spent(self) -> float:
        """ε of the user who spent most; a run that goes on may have opened more than it shows."""
        rows, mechanism = self.history(), self.config.mechanism
        if self.finished or not isinstance(mechanism, PrivateMechanism):
            return rows[-1].epsilon if rows else math.nan
        return self.folder.load_ledger(mechanism).epsilon

    def radio_map(self) -> RadioMap:
        """The learned map, or while the run goes on that of its newest checkpoint."""

        def read() -> RadioMap:
            _ = self.config  # a damaged one is an error of its own
            final = self.path / "radio_map.nc"
            found = (
                RadioMap.load(reading.unlinked(final))
                if self.finished
                else self.folder.newest_map()
            )
            if found is None:
                raise RunFolderError(
                    "no map yet: it is written with the run's first checkpoint; ask again soon"
                )
            return found

        return self._cached("radio_map", self.version, read)

    @property
    def _unfinished(self) -> str:
        return f"the run in {self.path} is not finished: go on with it (resume) first"

    @cached_property
    def stations(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Places (B, 3) and ids of the public base stations."""
        return self.folder.base_stations()

    @cached_property
    def station_errors(self) -> dict[str, float]:
        """Errors in metres of base stations whose positions are estimates, by id."""
        return self.folder.station_errors()

    @property
    def command(self) -> str | None:
        """The command that trains the run again, where its folder says enough."""
        if self.source is None:
            return None
        measured = self.data is not None and self.data.antennas is not None
        unused = measured and self.config.antennas is None
        return command.command(self.config, self.source, self.kept_rounds(), no_antennas=unused)

    # ---- what its server saw

    def kept_rounds(self) -> list[int]:
        """Rounds whose uploads were kept, from 0."""
        return self.folder.kept_rounds()

    def attackable_rounds(self) -> list[int]:
        """Kept rounds that attacks can read: those of a residual field are not among them."""
        last = self.config.attackable_rounds
        return [number for number in self.kept_rounds() if number < last]

    def transcript(self, rounds: Callable[[], list[int]] | None = None) -> Transcript:
        """What the server saw; rounds, by default all kept ones, are read when looked at."""
        radio_map = self.radio_map()
        seen = _SeenRounds(self.folder, radio_map, rounds or self.kept_rounds)
        return transcript_of(self.config, radio_map, self.folder.base_stations(), seen)

    def witness(self) -> Witness:
        """A view of attackable rounds, with the measurements where they are at hand."""
        # Attackers have the last map too: with it there is another one.
        return self._cached(
            "witness",
            self.finished,
            lambda: Witness(self.transcript(self.attackable_rounds), self.data),
        )

    @property
    def run(self) -> Run:
        """The finished run as training returned it; its kept rounds are read when looked at."""
        radio_map = self.finished_map()
        return Run(radio_map, self.history(), self.transcript(), self.path, seed=self.config.seed)

    # ---- the truth, where it is on this host

    @cached_property
    def source(self) -> Source | None:
        """Where the run says that its measurements are; None where others were named."""
        if self.withheld or self._data is not None:
            return None
        try:
            return self._own_source()
        except (VeilmapError, OSError):
            return None

    @cached_property
    def crowd(self) -> tuple[Measurements | MeasurementFolder, Measurements | None]:
        """The users' measurements, and test data if there are any; an error if they are missing."""
        if self.withheld:
            raise PrivacyError(self.withheld)
        truth: Measurements | MeasurementFolder
        if self._data is not None:
            truth = ingest.load_crowd(self._data)
            unseen = ingest.load(self._test) if self._test else None
        else:
            truth, unseen, _ = self._own_source().load()
        if not self._may_be_behind(truth):
            raise ConfigurationError(
                f"{self.path} was trained on other measurements; name its own with data", "data"
            )
        return truth, unseen

    @property
    def measurements(self) -> Measurements:
        """The users' measurements as one table; an error if they are missing or too many."""
        many = 0 if self.withheld or self._data else self._own_source().synthetic_links
        if many > limits.RUN_LINKS:  # before they are made
            raise DataError(
                f"{self.path} was trained on {many:,} links of a synthetic city, more than the"
                f" {limits.RUN_LINKS:,} that are made at once to show single users"
            )
        truth, _ = self.crowd
        if isinstance(truth, Measurements):
            return truth
        if len(truth) > limits.RUN_LINKS:
            raise DataError(
                f"{truth.path} holds {len(truth):,} links, more than the {limits.RUN_LINKS:,} that"
                " are read at once to show single users; `veilmap audit` reads them in parts"
            )
        return truth.load()

    @cached_property
    def _at_hand(self) -> tuple[Measurements | None, str]:
        """The measurements, or why there are none."""
        try:
            return self.measurements, ""
        except (VeilmapError, OSError) as error:
            if self._is_named:
                raise
            return None, str(error)

    @property
    def data(self) -> Measurements | None:
        """The users' measurements; None where they are not at hand."""
        return self._at_hand[0]

    @property
    def missing(self) -> str:
        """Why the measurements are not at hand; empty where they are."""
        return self._at_hand[1]

    @property
    def test(self) -> Measurements | None:
        """Measurements of test users, where there are any."""
        return None if self.data is None else self.crowd[1]

    @property
    def mae_db(self) -> float:
        """The map's error on test users; NaN where it was never measured."""
        if self.test is None:
            return last_mae(self.history())
        return mean_absolute_error(self.radio_map(), self.test)

    @cached_property
    def scene(self) -> Scene | None:
        """The synthetic city, for runs in one."""
        return None if self.source is None or self.data is None else self.source.scene

    @cached_property
    def is_data_known(self) -> bool:
        """Whether anything tells the run's measurements from others of the same users."""
        return self.config.data is not None and self.config.data.sha256 is not None

    def _may_be_behind(self, truth: Crowd) -> bool:
        """Whether the run was trained on these measurements, as far as it can be known."""
        if self.is_data_known:
            return Fingerprint.of(truth) == self.config.data
        count = self.config.users or len(truth.users)
        return count == len(truth.users) and self._participants() <= {*truth.users.tolist()}

    def _participants(self) -> set[ClientId]:
        """Users who are known to have taken part."""
        if isinstance(self.config.mechanism, PrivateMechanism):
            return {*self.folder.load_ledger(self.config.mechanism).spent}
        return {client for seen in self.transcript().rounds.values() for client in seen.clients}

    def _own_source(self) -> Source:
        source = Source.of(self.config)
        return source if self._test is None else replace(source, test=self._test)

    @property
    def _is_named(self) -> bool:
        """Whether somebody named measurements."""
        return self._data is not None or self._test is not None


def label_of(mechanism: Mechanism, server_sees: str) -> str:
    """A mechanism with its main parameters, and the trust model in a few words."""
    parts = [mechanism.name]
    for name, known in options_of(type(mechanism)).items():
        if known.symbol and not known.choices:
            parts.append(f"{known.symbol} = {getattr(mechanism, name):g}")
    if has_guarantee(mechanism) and author_of(type(mechanism)) is not None:
        parts.append("only claimed")
    if server_sees != "uploads":
        parts.append({"sums": "sums only"}.get(server_sees, server_sees))
    elif mechanism.covers_theta:
        parts.append("θ in sums")
    return ", ".join(parts)


class _SeenRounds(Mapping[int, SeenRound | SeenSum]):
    """Kept rounds, read when they are looked at: all of them might not fit into memory."""

    def __init__(
        self, folder: RunFolder, radio_map: RadioMap, numbers: Callable[[], list[int]]
    ) -> None:
        self._numbers = numbers
        self._read = lru_cache(_CACHED_ROUNDS)(
            lambda number: folder.load_round(number, radio_map.grid)
        )

    def __getitem__(self, number: int) -> SeenRound | SeenSum:
        if number not in self:
            raise KeyError(number)
        return self._read(number)

    def __contains__(self, number: object) -> bool:
        return number in self._numbers()

    def __iter__(self) -> Iterator[int]:
        return iter(self._numbers())

    def __len__(self) -> int:
        return len(self._numbers())
