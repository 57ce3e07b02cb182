"""What training gave, and how to get it back from its folder."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veilmap._util import reading
from veilmap.errors import RunFolderError
from veilmap.federation import history
from veilmap.federation.config import RunConfig
from veilmap.federation.history import HistoryRow
from veilmap.federation.public import Stations, seen_from
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import StudyFolder
from veilmap.federation.transcript import SeenRound, SeenSum, Transcript
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise, promise


@dataclass(frozen=True)
class Run:
    """What training gave."""

    radio_map: RadioMap
    # Whole rows where it was trained in this process; for a study, see `published`.
    history: list[HistoryRow] = field(repr=False)
    transcript: Transcript = field(repr=False)  # with the rounds that ``keep_uploads`` asked for
    folder: Path | None = None
    stopped: str = ""  # why training ended before its last round, if it did
    seed: int | None = None  # of its noise; a run that has one promises nothing

    @property
    def promise(self) -> Promise:
        """What it promises its users, or why nothing."""
        spent = self.history[-1].epsilon if self.history else math.nan
        return promise(self.transcript.mechanism, spent, self.seed)

    @classmethod
    def load(cls, path: str | Path, *, study: bool = False) -> "Run":
        """A finished run out of its folder.

        Under a guarantee that is what was published; with ``study`` the history has what the
        folder beside it adds, which is not for publication.
        """
        folder, radio_map = RunFolder(path), load_map(path)
        rounds, config = folder.load_rounds(radio_map.grid), folder.config()
        transcript = transcript_of(config, radio_map, folder.base_stations(), rounds)
        rows = history.load(folder.path / "history.csv")
        if study and config.promised:
            rows = StudyFolder(path).joined(rows)
        return cls(radio_map, rows, transcript, folder.path, seed=config.seed)


def transcript_of(
    config: RunConfig,
    radio_map: RadioMap,
    stations: Stations,
    rounds: Mapping[int, SeenRound | SeenSum],
) -> Transcript:
    """What the server of a run saw: kept rounds, and public facts."""
    places, bs = seen_from(*stations, radio_map.offsets)
    grid, sees = radio_map.grid, config.server_sees
    return Transcript(grid, config.mechanism, places, rounds, sees, radio_map, bs)


def load_map(path: str | Path) -> RadioMap:
    """Only the map of a finished run: uploads may be large."""
    folder = RunFolder(path)
    folder.config()  # a damaged one is an error of its own
    if not (folder.path / "radio_map.nc").exists():
        raise RunFolderError(f"the run in {path} is not finished: go on with it (resume) first")
    return RadioMap.load(reading.unlinked(folder.path / "radio_map.nc"))
