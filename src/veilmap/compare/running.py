"""Cross-validation: every method on every fold, scores in a file, and summaries."""

import hashlib
import json
import math
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from veilmap._util import files, limits, reading
from veilmap._util.plain import to_plain
from veilmap.compare.folds import Fold, Splits
from veilmap.compare.methods import ComparisonSettings, Method
from veilmap.data.measurements import Measurements
from veilmap.errors import DataError
from veilmap.federation.config import Fingerprint


@dataclass(frozen=True)
class FoldScore:
    """How one method did on the tested links of one fold.

    ``seconds`` are for learning and predicting, without the choice of a ``model``, which our
    modes make on validation data.
    """

    scheme: str
    fold: int
    method: str
    links: int
    mae_db: float
    rmse_db: float
    seconds: float
    model: str = ""

    @property
    def key(self) -> tuple[str, int, str]:
        """What tells it from all others."""
        return self.scheme, self.fold, self.method


@dataclass(frozen=True)
class Summary:
    """A method over all folds of a scheme.

    Attributes
    ----------
    mae_db, rmse_db : float
        Over all links of all folds.
    spread_db : float
        Standard error of the folds' mean MAE; NaN for a single fold.
    seconds : float
        Mean of the folds'.
    cost_db : float
        MAE above our central mode's on the same folds; NaN without it.
    models : tuple of (model, folds)
        What was chosen, the most frequent first.
    """

    scheme: str
    method: str
    folds: int
    mae_db: float
    rmse_db: float
    spread_db: float
    seconds: float
    cost_db: float
    models: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Comparison:
    """All scores, in the order they were made."""

    scores: Sequence[FoldScore]

    def summaries(self) -> list[Summary]:
        """A row for each scheme and method, in the order of their first appearance."""
        schemes = dict.fromkeys(score.scheme for score in self.scores)
        names = dict.fromkeys(score.method for score in self.scores)
        rows = [self._summary(scheme, name) for scheme in schemes for name in names]
        return [row for row in rows if row is not None]

    def _of(self, scheme: str, method: str) -> dict[int, FoldScore]:
        return {score.fold: score for score in self.scores if score.key[::2] == (scheme, method)}

    def _summary(self, scheme: str, method: str) -> Summary | None:
        own, central = self._of(scheme, method), self._of(scheme, "central")
        if not own:
            return None
        scores = list(own.values())
        errors = np.array([score.mae_db for score in scores])
        spread = errors.std(ddof=1) / math.sqrt(len(errors)) if len(errors) > 1 else math.nan
        both = sorted(set(own) & set(central))
        cost = math.nan
        if both:
            cost = _mae([own[n] for n in both]) - _mae([central[n] for n in both])
        counts = Counter(score.model for score in scores if score.model)
        links = np.array([score.links for score in scores])
        squares = np.array([score.rmse_db**2 for score in scores])
        rmse = math.sqrt(links @ squares / links.sum())
        return Summary(
            scheme,
            method,
            folds=len(scores),
            mae_db=_mae(scores),
            rmse_db=rmse,
            spread_db=float(spread),
            seconds=float(np.mean([score.seconds for score in scores])),
            cost_db=cost,
            models=tuple(counts.most_common()),
        )


def _mae(scores: Sequence[FoldScore]) -> float:
    """Over all links of these folds."""
    links = np.array([score.links for score in scores])
    return float(links @ np.array([score.mae_db for score in scores]) / links.sum())


def compare(
    folds: Iterable[Fold], methods: Sequence[Method], done: Iterable[FoldScore] = ()
) -> Iterator[FoldScore]:
    """The score of every method on every fold, as they come; those ``done`` are not made anew."""
    known = {score.key: score for score in done}
    for fold in folds:
        for method in methods:
            key = fold.scheme, fold.number, method.name
            yield known[key] if key in known else scored(method, fold)


def scored(method: Method, fold: Fold) -> FoldScore:
    """Fit a method to a fold's training rows, and predict its test rows."""
    model = method.choose(fold) if method.choose else None
    estimator = method.estimator.clone(**({"model": model} if model else {}))
    started = time.perf_counter()
    wrong = estimator.fit(fold.train).predict_links(fold.test) - fold.test.gain_db
    seconds = time.perf_counter() - started
    return FoldScore(
        fold.scheme,
        fold.number,
        method.name,
        links=len(fold.test),
        mae_db=float(np.abs(wrong).mean()),
        rmse_db=float(np.sqrt(np.mean(wrong**2))),
        seconds=seconds,
        model=str(model or ""),
    )


class ScoreFile:
    """Scores in a file, so that a comparison can be stopped and resumed.

    Parameters
    ----------
    path : Path or None
        None keeps nothing.
    settings : dict
        What decides a score beside its scheme, fold and method, see `described_settings`; a file
        of other settings is refused.
    """

    def __init__(self, path: Path | None, settings: dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        self.scores = self._read(path) if path is not None and path.exists() else []

    def _read(self, path: Path) -> list[FoldScore]:
        try:
            found = reading.read_json(path, limits.JSON_BYTES)
            settings = found["settings"]
            scores = [FoldScore(**score) for score in found["scores"]]
        except (OSError, ValueError, KeyError, TypeError):
            raise DataError(f"{path} is not a comparison; name another file") from None
        if settings != self.settings:
            raise DataError(
                f"{path} was made from other data or settings; name another file, or remove it"
            )
        return scores

    def compare(self, folds: Iterable[Fold], methods: Sequence[Method]) -> Iterator[FoldScore]:
        """Scores as `compare` gives them; those in the file are not made anew, others added."""
        for score in compare(folds, methods, tuple(self.scores)):
            if score not in self.scores:
                self.scores.append(score)
                self._write()
            yield score

    def _write(self) -> None:
        if self.path is not None:
            found = {"settings": self.settings, "scores": [asdict(one) for one in self.scores]}
            files.write_text(json.dumps(found, indent=1), self.path)


def described_settings(
    settings: ComparisonSettings, data: Measurements, splits: Splits
) -> dict[str, Any]:
    """All that decides a score beside its scheme, fold and method, as plain data."""
    known = settings.buildings
    public = {
        "data": to_plain(Fingerprint.of(data)),
        "folds": splits.folds,
        **to_plain(replace(settings, buildings=None)),
        "seed": splits.seed,
        "buildings": None if known is None else hashlib.sha256(known.tobytes()).hexdigest(),
    }
    return json.loads(json.dumps(public))
