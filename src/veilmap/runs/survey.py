"""One opened survey, for the command line, reports and the page alike."""

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veilmap._util import reading
from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.federation.study import StudyFolder
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise
from veilmap.runs.result import OpenResult
from veilmap.runs.survey_audit import SurveyAudit
from veilmap.surveys.aggregate import OpenedSum
from veilmap.surveys.design import RECEIVER_HEIGHT, Survey
from veilmap.surveys.folder import SurveyFolder

STANDS_OUT = 3.0  # noise deviations; of a thousand points with noise alone one lies above


@dataclass(frozen=True, eq=False)
class StationSum:
    """What was opened of one base station, in contributions at every point, (rows, columns).

    Whoever is heard by several base stations or lies between points adds less than one at each.
    """

    station: str
    length: NDArray[np.float64]  # |Σ w e^{iωf}| with its noise
    counts: NDArray[np.float64]  # Re Σ w e^{iω(f − map)}: the noise is around 0
    noise: float  # standard deviation of each count

    @property
    def standing_out(self) -> int:
        """Points whose count is more than three deviations above none."""
        return int((self.counts > STANDS_OUT * self.noise).sum())


class OpenSurvey(OpenResult):
    """A survey's folder as data; what its guarantee does not cover is its audit."""

    kind = "survey"

    def __init__(self, path: Path, *, study: bool = False) -> None:
        super().__init__(path, study=study)
        self.folder = SurveyFolder(path)

    @property
    def survey(self) -> Survey:
        """The design."""
        return self.folder.survey

    @property
    def account(self) -> dict[str, Any]:
        """What was opened, when, and what it cost each participant."""
        return self.folder.account

    @property
    def label(self) -> str:
        """One sum, and its ε."""
        epsilon = self.promise.epsilon
        return "one sum, " + ("no promise" if math.isnan(epsilon) else f"ε = {epsilon:.3g}")

    @property
    def promised(self) -> bool:
        """Whether the noise was drawn without a seed."""
        return not self.account["seeded"]

    @property
    def promise(self) -> Promise:
        """What is promised to every participant, or why nothing is."""
        return self.folder.promise

    @property
    def users(self) -> int:
        """How many took part."""
        count: int = self.account["participants"]
        return count

    @property
    def version(self) -> tuple[str, int]:
        """The map's file, and when it was written."""
        return self.folder.map_file.name, _written(self.folder.map_file)

    def radio_map(self) -> RadioMap:
        """The map; an error where it is another survey's."""

        def read() -> RadioMap:
            found = RadioMap.load(reading.unlinked(self.folder.map_file))
            field, ids = found.field, tuple(one.id for one in self.survey.stations)
            if field is None or field.deviations is None or tuple(map(str, field.ids)) != ids:
                raise RunFolderError(
                    f"{self.folder.map_file} is not the map of the survey beside it; make it anew"
                    " with `veilmap survey open`"
                )
            return found

        return self._cached("radio_map", self.version, read)

    @property
    def stations(self) -> tuple[NDArray[np.float64], tuple[str, ...]]:
        """Places (S, 3) and ids of the surveyed base stations."""
        return self.survey.positions, tuple(one.id for one in self.survey.stations)

    @property
    def unpublished(self) -> Path:
        """The folder for what no guarantee covers."""
        return StudyFolder(self.path).path

    @property
    def _unfinished(self) -> str:
        return (
            f"the survey in {self.path} has no map: make it from the opened sum with `veilmap"
            " survey open`"
        )

    # ---- what was opened, and how the audit went

    @cached_property
    def opened(self) -> OpenedSum:
        """The opened sum, which is written once."""
        return self.folder.opened()

    def sum_of(self, station: str) -> StationSum:
        """What the sum tells of one base station."""
        survey = self.survey
        places, ids = self.stations
        if station not in ids:
            raise ConfigurationError(f"the survey has no base station {station}", "station")
        number = ids.index(station)
        points = survey.grid.centres
        ground = np.column_stack([points, np.full(len(points), RECEIVER_HEIGHT)])
        gain = self.radio_map().predict(ground, places[number], station=station)
        # f, the residual that the map expects at each point
        residual = gain - survey.nominal(np.full(len(points), number), points)
        angles = self.opened.angles[number]
        turned = angles * np.exp(-2j * math.pi / survey.range_db * residual)
        shape = survey.grid.shape
        return StationSum(
            station,
            np.abs(angles).reshape(shape),
            turned.real.reshape(shape),
            self.opened.noise,
        )

    @property
    def audit(self) -> SurveyAudit | None:
        """What an audit of this sum found; None where there is none that may be shown."""
        path = self.unpublished / "audit" / "audit.json"
        written = _written(path)
        if self.withheld or written < _written(self.path / "sum.npz"):
            return None
        return self._cached("audit", written, lambda: SurveyAudit.read(path, self.survey.digest))


def _written(path: Path) -> int:
    """When a file was written; 0 where it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
