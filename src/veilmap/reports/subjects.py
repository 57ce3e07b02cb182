"""A run to write about, and what is at hand beside its folder."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from veilmap.auditing.exposure import Witness
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError, VeilmapError
from veilmap.federation import Run
from veilmap.federation.history import last_mae
from veilmap.federation.messages import ClientId
from veilmap.federation.run_folder import RunFolder
from veilmap.federation.study import STUDY, is_promised
from veilmap.model.evaluation import mean_absolute_error
from veilmap.runs import command
from veilmap.runs.source import Source, measurements_behind
from veilmap.scenes.scene import Scene

_WITHHELD = "this page holds what was published of the run, `--study` takes in the rest"


@dataclass(frozen=True)
class Subject:
    """A run, and what is at hand beside it.

    Attributes
    ----------
    name : str
    folder : Path
    run : Run
    config : mapping
        What the run was started with.
    source : Source or None
        Where its measurements are, if it says so.
    data, test : Measurements or None
    missing : str
        Why there are no measurements; empty if there are.
    study : str
        The words that head a page with more about a run with a guarantee than its folder holds;
        else empty.
    """

    name: str
    folder: Path
    run: Run = field(repr=False)
    config: Mapping[str, Any] = field(repr=False)
    source: Source | None = None
    data: Measurements | None = field(default=None, repr=False)
    test: Measurements | None = field(default=None, repr=False)
    missing: str = ""
    study: str = ""

    @classmethod
    def opened(
        cls,
        folder: Path,
        name: str,
        data: Path | None = None,
        test: Path | None = None,
        *,
        study: bool = False,
    ) -> "Subject":
        """A finished run; measurements that were named must be its own, others may be gone.

        Of a run with a guarantee it is only what was published, unless a ``study`` is wanted.
        """
        run, config = Run.load(folder, study=study), RunFolder(folder).config()
        marks = ""
        if is_promised(config):
            if not study:
                if data is not None or test is not None:
                    raise ConfigurationError(
                        f"{folder} has a guarantee, which does not cover its users' measurements"
                        " or the map's error on them: --study takes them in, and marks the page"
                    )
                return cls(name, folder, run, config, missing=_WITHHELD)
            marks = STUDY
        try:
            known, unseen = measurements_behind(folder, data, test)
        except VeilmapError as error:
            if data is not None or test is not None:
                raise
            return cls(name, folder, run, config, missing=str(error), study=marks)
        # Measurements that were named by hand do not say how the run was made.
        source = Source.of_run(folder, test) if data is None else None
        return cls(name, folder, run, config, source, known, unseen, study=marks)

    @property
    def withheld(self) -> bool:
        """Whether more may be known of the run than may be published, and is left out."""
        return is_promised(self.config) and not self.study

    @cached_property
    def scene(self) -> Scene | None:
        """The synthetic city, for runs in one."""
        return None if self.source is None else self.source.scene

    @property
    def command(self) -> str | None:
        """What makes the run again, where that is known."""
        if self.data is None:
            return None
        unused = self.data.antennas is not None and "antennas" not in self.config
        kept = sorted(self.run.transcript.rounds)
        return command.command(self.config, self.source, kept, no_antennas=unused)

    @cached_property
    def mae_db(self) -> float:
        """Of the map on test users; NaN where it was never measured."""
        if self.test is None:
            return last_mae(self.run.history)
        return mean_absolute_error(self.run.radio_map, self.test)

    @cached_property
    def witness(self) -> Witness:
        """Looks at the rounds that were kept."""
        return Witness(self.run.transcript, self.data)

    @property
    def auditable(self) -> bool:
        """Whether attacks can be scored."""
        return self.data is not None and bool(self.witness.rounds)

    def rounds_of(self, user: ClientId) -> list[int]:
        """The kept rounds that a user took part in."""
        witness = self.witness
        return [number for number in witness.rounds if user in witness.users(number)]

    def user_named(self, text: str) -> ClientId:
        """The user whose id reads like this."""
        for number in self.witness.rounds:
            for user in self.witness.users(number):
                if str(user) == text:
                    return user
        raise ConfigurationError(
            f"--user: no user {text} took part in a kept round of {self.folder}"
        )
