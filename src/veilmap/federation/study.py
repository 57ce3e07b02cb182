"""What a study knows of a run with a guarantee, in a folder beside the run's own.

    RUN.study/README.txt
              study.json      the whole configuration: which data, and where they are
              history.csv     whole rows: losses, norms, the map's error, seconds
              audit/          what attackers find, scored by the truth

The run's folder holds noisy sums, public facts and who took part; whatever else is measured on
users' data is here. Only a training in one process has it to write.
"""

from collections.abc import Sequence
from pathlib import Path

from veilmap._util import files
from veilmap.errors import RunFolderError
from veilmap.federation import history
from veilmap.federation.config import STUDY as CONFIG
from veilmap.federation.config import RunConfig
from veilmap.federation.history import HistoryRow

STUDY = "Study: not for publication"
SUFFIX = ".study"

_README = f"""{STUDY}

This folder belongs to the run beside it. It holds what was measured on users' data without
noise, such as losses, or says which data they are. No (ε, δ) covers any of it. Whoever
publishes the run leaves this folder behind; the run goes on without it.
"""


class StudyFolder:
    """Reads and writes what a study knows of a run."""

    def __init__(self, run: str | Path) -> None:
        run = Path(run).resolve()
        self.path = run.with_name(run.name + SUFFIX)

    def check_free(self) -> None:
        """Refuse to mix the studies of two runs."""
        if self.path.exists():
            raise RunFolderError(
                f"{self.path} holds the study of an earlier run; move it away, or name another"
                " folder for the new one"
            )

    def make(self) -> None:
        """The folder, with what it is."""
        files.write_text(_README, self.path / "README.txt", secret=True)

    def start(self, config: RunConfig) -> None:
        """Make the folder, with the whole configuration of its run."""
        self.make()
        config.save(self.path, CONFIG)

    def config(self) -> RunConfig | None:
        """The whole configuration of the run; None where nothing is known of its data."""
        known = RunConfig.exists(self.path, CONFIG)
        return RunConfig.load(self.path, CONFIG) if known else None

    def check(self, config: RunConfig) -> None:
        """Refuse to go on with other data than the run was started on, as far as it is known."""
        known = self.config()
        if known is not None and known.data != config.data:
            raise RunFolderError(
                f"{self.path} says that the run was started on other measurements; resume with the"
                " same ones or start a new folder"
            )

    def save_rows(self, rows: Sequence[HistoryRow]) -> None:
        """Write whole rows."""
        if not self.path.exists():  # somebody has published the run, and goes on with it
            self.make()
        history.save(rows, self.path / "history.csv")

    def joined(self, rows: Sequence[HistoryRow]) -> list[HistoryRow]:
        """Published rows with all that the study knows of their rounds."""
        path = self.path / "history.csv"
        known = {row.round: row for row in history.load(path)} if path.exists() else {}
        return [known.get(row.round, row) for row in rows]


def unpublished(run: Path) -> Path:
    """The folder for what is known about a run beyond its own publishing: its study, if it has one.

    Without a guarantee nothing is held back, and it is the run's own.
    """
    return StudyFolder(run).path if RunConfig.load(run).promised else run
