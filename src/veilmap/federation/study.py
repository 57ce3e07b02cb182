"""What a study knows of a run with a guarantee, in a folder beside the run's own.

    RUN.study/README.txt
              data.json       what tells its measurements from others
              history.csv     whole rows: losses, norms, the map's error, seconds
              source.json     where the measurements are
              audit/          what attackers find, scored by the truth

The run's folder holds noisy sums, public facts and who took part; whatever else is measured on
users' data is here. Only a training in one process has it to write.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from veilmap._util import files
from veilmap.errors import RunFolderError
from veilmap.federation import history
from veilmap.federation.history import HistoryRow
from veilmap.federation.run_folder import RunFolder
from veilmap.privacy.accounting import has_guarantee
from veilmap.privacy.mechanisms import from_description

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
        files.write_text(_README, self.path / "README.txt")

    def start(self, data: Mapping[str, Any]) -> None:
        """Make the folder of a new run, on the data of this fingerprint."""
        self.make()
        files.write_json(data, self.path / "data.json")

    def data(self) -> dict[str, Any] | None:
        """The fingerprint of the run's data; None where nothing is known of them."""
        path = self.path / "data.json"
        try:
            return json.loads(path.read_text()) if path.exists() else None
        except json.JSONDecodeError:
            raise RunFolderError(f"{path} is damaged") from None

    def check(self, data: Mapping[str, Any]) -> None:
        """Refuse to go on with other data than the run was started on, as far as it is known."""
        if self.data() not in (None, dict(data)):
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


def is_promised(config: Mapping[str, Any]) -> bool:
    """Whether the mechanism of a run, by its configuration, has a guarantee."""
    return has_guarantee(from_description(config.get("mechanism") or {}))


def unpublished(run: Path) -> Path:
    """The folder for what is known about a run beyond its own publishing: its study, if it has one.

    Without a guarantee nothing is held back, and it is the run's own.
    """
    return StudyFolder(run).path if is_promised(RunFolder(run).config()) else run
