"""Which folders hold something to look at, and what."""

from collections.abc import Iterator
from pathlib import Path

from veilmap.errors import ConfigurationError, RunFolderError
from veilmap.federation.config import RunConfig
from veilmap.runs.opened import OpenRun
from veilmap.runs.survey import OpenSurvey
from veilmap.surveys.folder import SurveyFolder


def holds_result(path: Path) -> bool:
    """Whether a folder is that of a run or of a survey."""
    return RunConfig.exists(path) or SurveyFolder(path).exists


def results_in(place: Path) -> Iterator[Path]:
    """The folder itself and those in it, as far as they are of runs or surveys."""
    try:
        inner = sorted(path for path in place.iterdir() if path.is_dir())
    except OSError:
        inner = []
    yield from filter(holds_result, (place, *inner))


def open_result(
    path: Path, *, data: Path | None = None, test: Path | None = None, study: bool = False
) -> OpenRun | OpenSurvey:
    """The run or the survey in a folder; parameters as of `OpenRun`.

    A survey is shown without any measurements, and takes none.
    """
    if RunConfig.exists(path):
        return OpenRun(path, data=data, test=test, study=study)
    if not SurveyFolder(path).exists:
        raise RunFolderError(
            f"{path} holds neither a run (config.json) nor an opened survey (survey.json and"
            " ledger.json)"
        )
    for name, given in (("data", data), ("test", test)):
        if given is not None:
            raise ConfigurationError(f"{name} is not for surveys, as {path} is one", name)
    return OpenSurvey(path, study=study)
