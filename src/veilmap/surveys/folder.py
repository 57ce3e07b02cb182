"""A survey on disk: its design, the account of its opening, the opened sum and the map."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import archives, checks, files, reading
from veilmap._util.plain import DAMAGED
from veilmap._util.version import __version__
from veilmap.errors import PrivacyError, RunFolderError
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import Promise, composed_epsilon, promise_of_sum
from veilmap.surveys.aggregate import OpenedSum, noised
from veilmap.surveys.design import Survey

_FARTHEST = 1e8  # metres; coordinates on Earth are smaller
_LARGEST_EPSILON = 1e9  # beyond it noise cannot be computed


@dataclass(frozen=True)
class SurveyFolder:
    """Reads and writes the folder of one survey.

    ``survey.json`` is the design, ``ledger.json`` says that its sum was opened, by which version
    and when, and is written before that happens; ``sum.npz`` is the opened sum, ``radio_map.nc``
    the map. Design, number of participants and, in a study, the seed are all that decides a sum
    beside the measurements, which no file here tells anything of.
    """

    path: Path

    @property
    def exists(self) -> bool:
        """Whether a survey was opened here; a design alone is none."""
        return (self.path / "survey.json").is_file() and self._ledger.is_file()

    def begin(
        self,
        survey: Survey,
        participants: int,
        seed: int | None,
        *,
        after: Sequence["SurveyFolder"] = (),
        opening: Mapping[str, str] | None = None,
    ) -> None:
        """Write down that the sum is about to be opened; a second opening is refused.

        The surveys that the same people took part in before are ``after``: ε is of all together.
        ``opening`` is what two aggregators have signed of theirs: it may be written down again.
        """
        before = [sum_ for folder in after for sum_ in folder.sums]
        self.check_earlier(seed, after)
        with files.locked(self.path / ".lock"):
            if self._ledger.exists():
                known = self.account
                if opening is None or known["opening"] != opening:
                    raise self._opened_already()
                if [tuple(one) for one in before] != known["earlier"]:
                    raise PrivacyError(
                        f"{self.path} was begun after other earlier surveys than are named now"
                    )
                return  # the same shares with the same noise
            survey.save(self.path / "survey.json")
            spent = composed_epsilon([*before, (survey.deviation, survey.clip)], survey.delta)
            account = {
                "survey": survey.digest,
                "participants": participants,
                "epsilon": None if seed is not None else spent,
                "delta": survey.delta,
                "earlier": before,
                "seeded": seed is not None,
                "seed": seed,
                "veilmap": __version__,
                "opened": datetime.now(UTC).isoformat(timespec="seconds"),
                "opening": None if opening is None else dict(opening),
            }
            files.write_json(account, self._ledger, secret=True, sealed=True)

    def check_earlier(self, seed: int | None, after: Sequence["SurveyFolder"]) -> None:
        """Refuse earlier surveys that leave nothing to promise to the people who were in them."""
        if seed is None and any(folder.account["seeded"] for folder in after):
            raise PrivacyError(
                "an earlier survey was a study with a seed: nothing can be promised to the people"
                " who were in it"
            )

    def check_free(self, is_own: Callable[[Any], bool]) -> None:
        """Refuse, before anything is opened, a folder that holds an opening which is not one's own.

        ``is_own`` is asked of what two aggregators have signed, or of None.
        """
        if self._ledger.exists() and not is_own(self.account["opening"]):
            raise self._opened_already()

    def _opened_already(self) -> PrivacyError:
        return PrivacyError(
            f"{self.path} was opened already; opening a sum twice, with new noise, would cost its"
            " participants' ε twice. Name another folder for another survey"
        )

    def save(self, opened: OpenedSum, radio_map: RadioMap) -> None:
        """Write the opened sum and the map."""
        archives.save(self._sum, {"total": opened.total}, compressed=True)
        radio_map.save(self.map_file)

    @property
    def _ledger(self) -> Path:
        return self.path / "ledger.json"

    @property
    def _sum(self) -> Path:
        return self.path / "sum.npz"

    @property
    def map_file(self) -> Path:
        """Where the radio map is."""
        return self.path / "radio_map.nc"

    @cached_property
    def survey(self) -> Survey:
        """The design, which may be anybody's."""
        survey = Survey.load(self.path / "survey.json")
        if np.abs(survey.positions).max() > _FARTHEST:
            raise RunFolderError(f"{self.path / 'survey.json'} has base stations off the Earth")
        if survey.epsilon > _LARGEST_EPSILON:
            raise RunFolderError(f"{self.path / 'survey.json'} promises nothing with so large an ε")
        return survey

    @cached_property
    def account(self) -> dict[str, Any]:
        """What the opening cost each participant; ``epsilon`` is None where nothing is promised."""
        try:
            account = reading.read_json(self._ledger, follow=False, sealed=True)
            seeded = bool(account["seeded"])
            known = {
                "survey": str(account["survey"]),
                "participants": checks.whole("participants", account["participants"], least=1),
                "epsilon": None if seeded else checks.number("epsilon", account["epsilon"]),
                "delta": checks.number("delta", account["delta"]),
                "earlier": [_sum_of(*one) for one in account.get("earlier", ())],
                "seeded": seeded,
                "veilmap": str(account.get("veilmap", "")),
                "opened": str(account.get("opened", "")),
                "opening": account.get("opening"),
            }
        except DAMAGED as error:
            raise RunFolderError(f"{self._ledger} is no survey's account: {error}") from None
        if known["survey"] != self.survey.digest:
            raise RunFolderError(f"{self._ledger} belongs to another design than survey.json")
        return known

    @property
    def promise(self) -> Promise:
        """What is promised to every participant, or why nothing is."""
        account = self.account
        return promise_of_sum(
            account["epsilon"],
            account["delta"],
            account["participants"],
            seeded=account["seeded"],
            earlier=len(account["earlier"]),
        )

    @property
    def sums(self) -> list[tuple[float, float]]:
        """(deviation of the noise, clip) of every sum that its participants are in so far."""
        return [*self.account["earlier"], (self.survey.deviation, float(self.survey.clip))]

    def opened(self) -> OpenedSum:
        """The opened sum."""
        survey = self.survey
        try:
            total = archives.load(self._sum, follow=False)["total"]
        except DAMAGED as error:
            raise RunFolderError(f"{self._sum} is no opened sum: {error}") from None
        if total.shape != (survey.numbers,) or total.dtype.kind != "i":
            raise RunFolderError(
                f"{self._sum} holds {total.size} values of type {total.dtype}, not"
                f" {survey.numbers} whole numbers"
            )
        total = total.astype(np.int64)
        account = self.account
        return noised(survey, total, account["participants"], seeded=account["seeded"])


def _sum_of(deviation: Any, clip: Any) -> tuple[float, float]:
    return checks.number("deviation", deviation, above=0), checks.number("clip", clip, above=0)
