"""Every method on every fold, and what came of it."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from veilmap.compare.folds import Fold
from veilmap.compare.methods import Method


@dataclass(frozen=True)
class Score:
    """How one method did on one fold.

    Attributes
    ----------
    scheme, fold, method : str, int, str
    links : int
        Tested.
    mae_db, rmse_db : float
        Over all links of the fold.
    seconds : float
        For learning and predicting; the choice of a model is not in it.
    model : str
        What our modes chose on validation data.
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
    scheme, method : str
    folds : int
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

    scores: Sequence[Score]

    def summaries(self) -> list[Summary]:
        """A row for each scheme and method, in the order of their first appearance."""
        schemes = dict.fromkeys(score.scheme for score in self.scores)
        names = dict.fromkeys(score.method for score in self.scores)
        rows = [self._summary(scheme, name) for scheme in schemes for name in names]
        return [row for row in rows if row is not None]

    def _of(self, scheme: str, method: str) -> dict[int, Score]:
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
        counts: dict[str, int] = {}
        for score in scores:
            if score.model:
                counts[score.model] = counts.get(score.model, 0) + 1
        links = np.array([score.links for score in scores])
        squares = np.array([score.rmse_db**2 for score in scores])
        rmse = math.sqrt(links @ squares / links.sum())
        return Summary(
            scheme, method, len(scores), _mae(scores), rmse, float(spread),
            float(np.mean([score.seconds for score in scores])), cost,
            tuple(sorted(counts.items(), key=lambda item: -item[1])),
        )  # fmt: skip


def _mae(scores: Sequence[Score]) -> float:
    """Over all links of these folds."""
    links = np.array([score.links for score in scores])
    return float(links @ np.array([score.mae_db for score in scores]) / links.sum())


def compare(
    folds: Iterable[Fold], methods: Sequence[Method], done: Iterable[Score] = ()
) -> Iterator[Score]:
    """The score of every method on every fold, as they come; those ``done`` are not made anew."""
    known = {score.key: score for score in done}
    for fold in folds:
        for method in methods:
            key = fold.scheme, fold.number, method.name
            yield known[key] if key in known else scored(method, fold)


def scored(method: Method, fold: Fold, clock: Callable[[], float] = time.perf_counter) -> Score:
    """Learn from a fold's training rows, and predict its test rows."""
    learn = method.prepare(fold)
    started = clock()
    fitted = learn(fold)
    wrong = fitted.predictor.predict_links(fold.test) - fold.test.gain_db
    seconds = clock() - started
    return Score(
        fold.scheme, fold.number, method.name, len(fold.test), float(np.abs(wrong).mean()),
        float(np.sqrt(np.mean(wrong**2))), seconds, fitted.model,
    )  # fmt: skip
