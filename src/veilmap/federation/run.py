"""What training gave, and how to get it back from its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from veilmap.errors import RunFolderError
from veilmap.federation import history
from veilmap.federation.config import RunConfig
from veilmap.federation.history import HistoryRow
from veilmap.federation.public import seen_from
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import StudyFolder
from veilmap.federation.transcript import SeenRound, SeenSum, Transcript
from veilmap.model.radio_map import RadioMap


@dataclass(frozen=True)
class Run:
    """What training gave.

    Attributes
    ----------
    radio_map : RadioMap
    history : list of HistoryRow
        Whole rows where it was trained in this process; for a study, see `published`.
    transcript : Transcript
        Holds the rounds that were asked for with ``keep_uploads``.
    folder : Path or None
    stopped : str
        Why training ended before its last round; empty if it did not.
    seed : int or None
        Of its noise; a run that has one promises nothing.
    """

    radio_map: RadioMap
    history: list[HistoryRow] = field(repr=False)
    transcript: Transcript = field(repr=False)
    folder: Path | None = None
    stopped: str = ""
    seed: int | None = None

    @classmethod
    def load(cls, path: str | Path, *, study: bool = False) -> "Run":
        """A finished run out of its folder.

        Under a guarantee that is what was published; with ``study`` the history has what the
        folder beside it adds, which is not for publication.
        """
        folder, radio_map = RunFolder(path), load_map(path)
        rounds = folder.load_rounds(radio_map.grid)
        config = folder.config()
        transcript = transcript_of(folder, config, radio_map, rounds)
        rows = history.load(folder.path / "history.csv")
        if study and config.promised:
            rows = StudyFolder(path).joined(rows)
        return cls(radio_map, rows, transcript, folder.path, seed=config.seed)


def transcript_of(
    folder: RunFolder,
    config: RunConfig,
    radio_map: RadioMap,
    rounds: Mapping[int, SeenRound | SeenSum],
) -> Transcript:
    """What the server of a run saw: kept rounds, and the public facts that its folder holds."""
    stations, bs = seen_from(*folder.base_stations(), radio_map.offsets)
    return Transcript(
        radio_map.grid, config.mechanism, stations, rounds, config.server_sees, radio_map, bs
    )


def load_map(path: str | Path) -> RadioMap:
    """Only the map of a finished run: uploads may be large."""
    folder = RunFolder(path)
    folder.config()  # a damaged one is an error of its own
    if not (folder.path / "radio_map.nc").exists():
        raise RunFolderError(f"the run in {path} is not finished: go on with it (resume) first")
    return RadioMap.load(folder.path / "radio_map.nc")
