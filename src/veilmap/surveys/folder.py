"""A survey on disk: its design, the account of its opening, the opened sum and the map."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import checks, files
from veilmap.errors import PrivacyError, RunFolderError
from veilmap.model.radio_map import RadioMap
from veilmap.privacy.accounting import gaussian_epsilon
from veilmap.surveys.aggregate import OpenedSum
from veilmap.surveys.design import Survey


@dataclass(frozen=True)
class SurveyFolder:
    """Reads and writes the folder of one survey.

    ``survey.json`` is the design, ``ledger.json`` says that its sum was opened and is written
    before that happens, ``sum.npz`` is the opened sum, and ``radio_map.nc`` the map.
    """

    path: Path

    def begin(self, survey: Survey, participants: int, seed: int | None) -> None:
        """Write down that the sum is about to be opened; a second opening is refused."""
        self.path.mkdir(parents=True, exist_ok=True)
        with files.locked(self.path / ".lock"):
            if self._ledger.exists():
                raise PrivacyError(
                    f"{self.path} was opened already; opening a sum twice, with new noise, would"
                    " cost its participants' ε twice. Name another folder for another survey"
                )
            survey.save(self.path / "survey.json")
            spent = gaussian_epsilon(survey.deviation, survey.delta, survey.clip)
            account = {
                "survey": survey.digest,
                "participants": participants,
                "epsilon": None if seed is not None else spent,
                "delta": survey.delta,
                "seeded": seed is not None,
            }
            files.write_json(account, self._ledger)

    def save(self, opened: OpenedSum, radio_map: RadioMap) -> None:
        """Write the opened sum and the map."""
        with files.replacing(self._sum) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, total=opened.total)
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
        """The design."""
        return Survey.load(self.path / "survey.json")

    @cached_property
    def account(self) -> dict[str, Any]:
        """What the opening cost each participant; ``epsilon`` is None where nothing is promised."""
        try:
            account = json.loads(self._ledger.read_text(encoding="utf-8"))
            seeded = bool(account["seeded"])
            known = {
                "survey": str(account["survey"]),
                "participants": checks.whole("participants", account["participants"], least=1),
                "epsilon": None if seeded else checks.number("epsilon", account["epsilon"]),
                "delta": checks.number("delta", account["delta"]),
                "seeded": seeded,
            }
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise RunFolderError(f"{self._ledger} is no survey's account: {error}") from None
        if known["survey"] != self.survey.digest:
            raise RunFolderError(f"{self._ledger} belongs to another design than survey.json")
        return known

    def opened(self) -> OpenedSum:
        """The opened sum."""
        survey = self.survey
        try:
            with self._sum.open("rb") as file, np.load(file, allow_pickle=False) as content:
                total = np.asarray(content["total"], dtype=np.int64)
        except (*files.BROKEN_ARCHIVE, TypeError) as error:
            raise RunFolderError(f"{self._sum} is no opened sum: {error}") from None
        if total.shape != (survey.numbers,):
            raise RunFolderError(f"{self._sum} has {total.size} numbers, not {survey.numbers}")
        account = self.account
        return OpenedSum(
            survey, total, account["participants"], survey.deviation, account["seeded"]
        )
