"""Rounds whose gradients of θ are in the clear, as a likelihood of every user's place."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from veilmap._util.arrays import Bools, Floats, Ints
from veilmap.attacks.base import Posterior
from veilmap.attacks.candidates import Candidates
from veilmap.attacks.refinement import Leaves, climbed, refined
from veilmap.attacks.theta_moments import (
    Design,
    Expected,
    ExpectedResiduals,
    ExpectedSums,
    Heard,
)
from veilmap.federation.messages import ClientId
from veilmap.federation.transcript import SeenRound
from veilmap.model.propagation import at_100_m
from veilmap.model.radio_map import RadioMap, log_distance

_EDGE = 1e-3  # cells
_DIVIDED = 16  # cells that must hold half of the probability to be divided
_SETTLED = 0.125  # candidates' cells: how near to the likeliest place an answer is to be climbed to
_SHRINK = 0.75  # of a climb's cells from step to step: exact sums leave narrow ridges
_BLOCK_BYTES = 16e6  # of φ at the places that are worked on at a time


@dataclass(frozen=True)
class ThetaLikelihood:
    """Some rounds together: the users' links are taken to be the same in all of them."""

    candidates: Candidates
    rounds: tuple[SeenRound, ...]
    spread: float  # σ, in dB
    stations: int  # how many are public: of very many the candidates have a sample

    @cached_property
    def clients(self) -> tuple[ClientId, ...]:
        """All users, each once."""
        return tuple(dict.fromkeys(client for seen in self.rounds for client in seen.clients))

    @cached_property
    def _rows(self) -> list[Ints]:
        """Which of the clients each round's rows are."""
        row_of = {client: row for row, client in enumerate(self.clients)}
        return [np.array([row_of[c] for c in seen.clients], np.int64) for seen in self.rounds]

    @cached_property
    def _laws(self) -> int:
        """P: how many of θ's parameters are the laws'."""
        return 2 * self.candidates.best_map.propagation.laws

    @cached_property
    def _own_offsets(self) -> Ints | None:
        """The parameter that is each candidate station's offset; −1: none. None without any."""
        offsets = self.candidates.best_map.offsets
        if self.candidates.bs is None or not offsets.stations:
            return None
        own = offsets.numbers_of(self.candidates.bs)[0]
        return np.where(own < 0, -1, own + self._laws)

    def heard(self, together: Sequence[int]) -> list[tuple[Ints, Heard]]:
        """Users of some rounds in groups that took part in the same of them, and what they sent."""
        sent, links, present = self._sent
        wanted = np.zeros(len(self.rounds), dtype=bool)
        wanted[list(together)] = True
        keys: dict[tuple[int, bytes], list[int]] = {}
        for user in np.flatnonzero((present & wanted).any(axis=1)).tolist():
            keys.setdefault((int(links[user]), (present[user] & wanted).tobytes()), []).append(user)
        groups = []
        for (count, _), members in keys.items():
            users = np.array(members)
            values, own = sent[users], self._own_offsets
            residuals = None
            if own is not None:
                with_none = np.concatenate([values, np.zeros((*values.shape[:2], 1))], axis=2)
                residuals = -0.5 * count * with_none[..., own].transpose(0, 2, 1)[None]
            rounds = present[members[0]] & wanted
            groups.append((users, Heard(count, rounds, values[None, ..., : self._laws], residuals)))
        return groups

    @cached_property
    def _sent(self) -> tuple[Floats, Ints, Bools]:
        """∂F/∂θ (N, R, ·) by gain at 100 m and slope, J (N,), and who took part when (N, R)."""
        size = self.rounds[0].theta_gradient.shape[1]
        basis = at_100_m(self._laws // 2, size - self._laws)
        sent = np.zeros((len(self.clients), len(self.rounds), size))
        links = np.ones(len(self.clients), dtype=np.int64)
        present = np.zeros(sent.shape[:2], dtype=bool)
        for number, (seen, rows) in enumerate(zip(self.rounds, self._rows, strict=True)):
            sent[rows, number] = seen.theta_gradient @ basis.T
            links[rows], present[rows, number] = seen.weight, True
        return sent, links, present

    def expected(self, xy: Floats, rows: slice = slice(None)) -> Expected:
        """What users would send in all rounds at cells' centres (…, rows, columns, 2)."""
        places = self.candidates.places(self._off_edges(xy.reshape(-1, 2)))
        gains = self.candidates.gains(places)
        by_theta, residuals = [], []
        for seen in self.rounds:
            radio_map = seen.broadcast.radio_map
            phi, predicted = _laws_at(radio_map, places, self.candidates.stations)
            by_theta.append(phi)
            residuals.append(self.candidates.less_offsets(gains, radio_map) - predicted)
        design = Design(
            np.stack(by_theta, axis=1), np.stack(residuals, axis=1), xy.shape[:-1], rows
        )
        if self._own_offsets is None:
            return ExpectedSums.at(design, self.spread, self.stations)
        complete = self.stations == len(self.candidates.stations)
        return ExpectedResiduals.at(design, self.spread, complete=complete)

    def _off_edges(self, xy: Floats) -> Floats:
        """The places (n, 2), none on an edge between cells of the map.

        There a link crosses half a cell less of the ground around its user than elsewhere.
        """
        grid = self.candidates.best_map.grid
        phase = (xy - np.array(grid.origin)) / grid.cell_size
        return xy - np.where(np.abs(phase - np.rint(phase)) < _EDGE, 0.5 * grid.cell_size, 0.0)

    def of_candidates(self, choices: Sequence[Sequence[int]]) -> "list[ThetaEvidence]":
        """The evidence at all candidates of each choice of rounds, in one pass over the places."""
        groups = [self.heard(together) for together in choices]
        users, cells = len(self.clients), self.candidates.grid.cells
        evidence, refuted = np.zeros((2, len(choices), users, cells))
        for own, expected in self._strips():
            for number, group in enumerate(groups):
                for members, heard in group:
                    fit = expected.fit(heard)
                    evidence[number][members, own] = fit.evidence.T
                    refuted[number][members, own] = fit.refuted.T
        found = []
        row_of = {client: row for row, client in enumerate(self.clients)}
        for number, together in enumerate(choices):
            only = replace(self, rounds=tuple(self.rounds[i] for i in together))
            there = np.array([row_of[client] for client in only.clients], dtype=np.int64)
            floor = np.median(refuted[number, there], axis=1)
            total = np.logaddexp(evidence[number, there], floor[:, None])
            found.append(ThetaEvidence(only, total, floor))
        return found

    def _strips(self) -> Iterator[tuple[slice, Expected]]:
        """All candidates, some rows of their grid at a time: which, and what users would send."""
        rows, columns = self.candidates.grid.shape
        xy = self.candidates.grid.centres.reshape(rows, columns, 2)
        each = 8 * columns * len(self.candidates.stations) * len(self.rounds) * self._laws
        height = max(2, int(_BLOCK_BYTES / each))
        for first in range(0, rows, height):
            last = min(first + height, rows)
            start, stop = max(first - 1, 0), min(last + 1, rows)  # with neighbours
            inner = slice(first - start, last - start)
            yield slice(first * columns, last * columns), self.expected(xy[start:stop], inner)


def _laws_at(radio_map: RadioMap, places: Floats, stations: Floats) -> tuple[Floats, Floats]:
    """φ by gain at 100 m and slope, (n, P, B), and the laws' gains, (n, B)."""
    shape = len(places), len(stations)
    ends = np.repeat(places, shape[1], axis=0), np.tile(stations, (shape[0], 1))
    laws = radio_map.propagation
    if laws.between:
        shares = laws.shares(radio_map.obstruction(*ends))
    else:
        clear = radio_map.los_weight(*ends)
        shares = np.stack([clear, 1 - clear])
    log_d = log_distance(*ends) - 2
    by_theta = np.stack([shares, shares * log_d], axis=1).reshape(-1, *shape).transpose(1, 0, 2)
    # β + α log d = (β + 2α) + α (log d − 2)
    theta = np.linalg.solve(at_100_m(laws.laws).T, laws.as_array())
    return by_theta, np.matmul(theta, by_theta)


@dataclass(frozen=True)
class ThetaEvidence:
    """What some rounds' gradients of θ say of the places of all who took part."""

    likelihood: ThetaLikelihood
    at_candidates: Floats  # log-likelihood, (N, K)
    refuted: Floats  # that of no place at all, (N,): what places do not exceed says nothing

    @property
    def posterior(self) -> Posterior:
        """Beliefs about the candidates."""
        relative = self.at_candidates - self.at_candidates.max(axis=1, keepdims=True)
        grid = self.likelihood.candidates.grid
        return Posterior(grid, self.likelihood.clients, relative.astype(np.float32))

    @cached_property
    def _groups(self) -> list[tuple[Ints, Heard]]:
        return self.likelihood.heard(range(len(self.likelihood.rounds)))

    def at(self, users: Ints, xy: Floats) -> Floats:
        """Log-likelihood of small grids of cells (n, 2, 2, 2), each for one user: (n, 2, 2)."""
        result = np.empty(xy.shape[:-1])
        likelihood = self.likelihood
        links = len(likelihood.rounds) * len(likelihood.candidates.stations)
        size = max(1, int(_BLOCK_BYTES / (4 * 8 * links * 4)))
        for members, heard in self._groups:
            row_of = np.full(len(likelihood.clients), -1)
            row_of[members] = np.arange(len(members))
            own = np.flatnonzero(row_of[users] >= 0)
            for first in range(0, len(own), size):
                some = own[first : first + size]
                rows = np.repeat(row_of[users[some]], 4)
                fit = likelihood.expected(xy[some]).fit(heard.of(rows))
                result[some] = fit.evidence.reshape(-1, 2, 2)
        return np.logaddexp(result, self.refuted[users][:, None, None])

    def places(self) -> Floats:
        """The place of least expected distance from every user, (N, 2)."""
        grid = self.likelihood.candidates.grid
        cells = Leaves(grid.centres[None], self.at_candidates)
        places = cells.medians()
        # Where even the most probable cells are improbable, smaller ones tell no more.
        sure = np.flatnonzero(cells.held_by_best(_DIVIDED) >= 0.5)
        if len(sure) == 0:
            return places

        def log_likelihood(users: Ints, xy: Floats) -> Floats:
            return self.at(sure[users], xy)

        few = Leaves(grid.centres[None], self.at_candidates[sure])
        leaves = refined(few, grid.cell_size, log_likelihood)
        places[sure], best = leaves.medians(), leaves.modes()
        near = np.linalg.norm(places[sure] - best, axis=1) < _SETTLED * grid.cell_size
        places[sure[near]] = climbed(
            best[near],
            _SETTLED * grid.cell_size,
            _SHRINK,
            lambda users, xy: log_likelihood(np.flatnonzero(near)[users], xy),
        )
        west, east, south, north = grid.extent
        return np.clip(places, [west, south], [east, north])
