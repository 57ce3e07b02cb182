"""What the server does with the mean gradient: one step of the map.

Everything here works on the sum of what users sent, so it costs no privacy, whatever it
does. It must cope with gradients that are mostly noise: steps of equal length instead of
per-cell ones (which amplify noise), smoothing over neighbouring cells, and priors.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from veilmap._kernels import images
from veilmap._util import checks
from veilmap._util.arrays import Array, Floats
from veilmap._util.plain import plain
from veilmap.errors import ConfigurationError
from veilmap.federation.public import NOTHING, Public
from veilmap.geometry.grid import Grid
from veilmap.model.propagation import Propagation, at_100_m
from veilmap.model.radio_map import RadioMap


@dataclass(frozen=True)
class ServerState:
    """All that a step needs to know of the steps before it."""

    radio_map: RadioMap  # the current h and θ
    round: int = 0  # steps taken
    memory: Mapping[str, Array] = field(default_factory=dict)  # of the step rule
    links: int = 1  # behind the gradients that are stepped by next, or users who count alike
    filtered: float = 0.0  # width, in cells, of the filter that clients applied to them


class StepRule(Protocol):
    """From the mean gradients of a round to the next state."""

    def start(self, grid: Grid, public: Public = NOTHING) -> ServerState:
        """The state before the first round."""

    def filter_width(self, state: ServerState, rounds: int) -> float:
        """The width, in cells, of the filter that clients should apply before they clip."""

    def __call__(
        self, state: ServerState, by_cells: Floats, by_theta: Floats, rounds: int
    ) -> ServerState:
        """The next state, from the weighted mean gradients of a round (of ``rounds``)."""


class Prior(Protocol):
    """What the server believes about maps: better heights after a step of ``metres``."""

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights after the prior; ``known`` are public ones, of buildings."""


@plain
@dataclass(frozen=True)
class OpenGround:
    """Most ground is open: every step lowers all heights by ``share`` of its length.

    What no link speaks for sinks to the floor, and noise does not pile up. Where heights are known
    beforehand, all come nearer to them instead.
    """

    share: float = 0.45

    def __post_init__(self) -> None:
        checks.number("share", self.share, least=0)

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights, lower or nearer to known ones."""
        reach = self.share * metres
        if known is None:
            return heights - reach
        return heights + np.clip(known - heights, -reach, reach)


@plain
@dataclass(frozen=True)
class FlatPieces:
    """Maps are made of flat pieces: a total-variation prior of ``weight`` times the step."""

    weight: float = 0.4
    iterations: int = 30

    def __post_init__(self) -> None:
        checks.number("weight", self.weight, least=0)
        checks.whole("iterations", self.iterations, least=1)

    def __call__(self, heights: Floats, metres: float, known: Floats | None = None) -> Floats:
        """The heights, flatter: argmin ½‖x − h‖² + weight · metres · TV(x)."""
        return images.total_variation_prox(
            image=heights, weight=self.weight * metres, iterations=self.iterations
        )


# Known heights below this, in metres, are open ground.
_GROUND = 2.0

# The share of rounds after which θ is near enough to move slowly.
_THETA_SETTLES = 0.25

# Between what clear and blocked links show; both laws start alike at 1 m.
_START = Propagation(-35.0, -20.0, -35.0, -30.0)


@plain
@dataclass(frozen=True)
class PlainDescent:
    """The paper's step: h ← h − η_h ḡ, θ ← θ − η_θ ∇F(θ), obstacles never below ground.

    Lengths are in metres.
    """

    heights_rate: float = 10.0  # η_h in m² per dB²
    propagation_rate: float = 0.01  # η_θ
    start_height: float = 4.0  # h of every cell
    start_propagation: Propagation = _START
    floor: float = 0.0  # bounds of h
    ceiling: float = 130.0
    sharpness: float = 1.0  # of the smooth model, per metre

    def __post_init__(self) -> None:
        for name in ("heights_rate", "propagation_rate", "sharpness"):
            checks.number(name, getattr(self, name), above=0)
        _check_start(self.start_height, self.floor, self.ceiling)

    def start(self, grid: Grid, public: Public = NOTHING) -> ServerState:
        """A flat map, or the heights that are known."""
        heights = public.heights
        if heights is None:
            heights = np.full(grid.shape, float(self.start_height))
        heights = np.clip(heights, self.floor, self.ceiling)
        laws, offsets, antennas = self.start_propagation, public.offsets, public.antennas
        return ServerState(RadioMap(grid, heights, laws, self.sharpness, offsets, None, antennas))

    def filter_width(self, state: ServerState, rounds: int) -> float:
        """None: a plain step is by the gradient as it is."""
        return 0.0

    def __call__(
        self, state: ServerState, by_cells: Floats, by_theta: Floats, rounds: int
    ) -> ServerState:
        """One plain step down."""
        old = state.radio_map
        heights = old.heights - self.heights_rate * by_cells.reshape(old.grid.shape)
        theta = old.theta - self.propagation_rate * by_theta
        heights = np.clip(heights, self.floor, self.ceiling)
        return ServerState(old.moved_to(heights, theta, self.sharpness), state.round + 1)


@plain
@dataclass(frozen=True)
class NoiseAwareStep:
    """The default server step, made for gradients under heavy noise.

    Lengths are in metres unless they say cells.
    """

    # h of every cell at the start. High obstacles block every link, and a blocked link has no
    # gradient; the soft start forgives up to about 50 m.
    start_height: float = 4.0
    start_propagation: Propagation = _START
    # Of the smooth model, per metre: at the end, and at the start. A soft model lets links feel
    # obstacles well above and below them, so that early rounds find the buildings; it hardens
    # evenly (by factors) over the first ``soft_share`` of all rounds.
    sharpness: float = 1.0
    start_sharpness: float = 0.2
    soft_share: float = 0.5
    # Bounds of h. A floor below ground lets the map say "certainly clear"; at 0 m even a clear
    # link near a user on the ground seems half blocked.
    floor: float = -8.0
    ceiling: float = 130.0
    step: float = 3.0  # root-mean-square change of h in the first rounds; 0 keeps the start
    last_step: float = 0.02  # share of it left in the last round, along half a cosine
    priors: tuple[Prior, ...] = (OpenGround(), FlatPieces())  # applied to h after each step
    # Standard deviation, in cells, of the Gaussian filter over the gradient: in the first round
    # and, narrowed evenly, in the last; and of that over the gradient's running energy.
    smoothing: float = 3.0
    last_smoothing: float = 1.0
    energy_smoothing: float = 1.0
    velocity_memory: float = 0.8  # what the running means keep each round
    energy_memory: float = 0.95
    damping: float = 0.1  # share of the mean energy added to each cell's before taking its root
    # Damping and soft share where users filtered their gradients, as they do for sums with noise:
    # the energy tells of that noise, which is the same in every cell, and small shapes come later.
    noisy_damping: float = 10.0
    noisy_soft_share: float = 0.7
    theta_rate: float = 0.2  # step of θ (Adam), in dB at 100 m and dB per decade
    # The same in the first round, falling evenly (by factors) over the first quarter: for gains
    # that may lie tens of dB from where θ starts. By default the same.
    start_theta_rate: float | None = None

    def __post_init__(self) -> None:
        if self.start_theta_rate is not None:
            checks.number("start_theta_rate", self.start_theta_rate, above=0)
        shares = ("damping", "noisy_damping", "soft_share", "noisy_soft_share")
        for name in (*shares, "sharpness", "start_sharpness"):
            checks.number(name, getattr(self, name), above=0)
        widths = ("smoothing", "last_smoothing", "energy_smoothing")
        for name in ("step", "last_step", "theta_rate", *widths):
            checks.number(name, getattr(self, name), least=0)
        for name in ("velocity_memory", "energy_memory"):
            if not 0 <= checks.number(name, getattr(self, name)) < 1:
                raise ConfigurationError(f"{name} must be at least 0 and below 1")
        _check_start(self.start_height, self.floor, self.ceiling)

    def start(self, grid: Grid, public: Public = NOTHING) -> ServerState:
        """The state before the first round."""
        heights = np.full(grid.shape, float(self.start_height))
        known = public.heights
        if known is not None:
            # A little above ground is ground: near the floor the map says "certainly clear".
            known = np.clip(np.where(known < _GROUND, self.floor, known), self.floor, self.ceiling)
            heights = known
        laws, offsets, antennas = self.start_propagation, public.offsets, public.antennas
        first = RadioMap(grid, heights, laws, self.start_sharpness, offsets, None, antennas)
        memory = {} if known is None else {"known": known}
        memory |= {name: np.zeros(grid.shape) for name in ("velocity", "energy")}
        memory |= {f"theta_{name}": np.zeros(len(first.theta)) for name in ("velocity", "energy")}
        return ServerState(first, 0, memory)

    def __call__(
        self, state: ServerState, by_cells: Floats, by_theta: Floats, rounds: int
    ) -> ServerState:
        """The next state, from the weighted mean gradients of a round (of ``rounds``)."""
        grid = state.radio_map.grid
        done = state.round / rounds
        # Widths of filters that follow each other add up as squares.
        left = math.sqrt(max(self._width(done) ** 2 - state.filtered**2, 0.0))
        smooth = smoothed(by_cells.reshape(grid.shape), left)
        velocity = blended(state.memory["velocity"], smooth, self.velocity_memory)
        energy = blended(state.memory["energy"], velocity**2, self.energy_memory)

        metres = self.step * (0.5 * (1 + np.cos(np.pi * done)) + self.last_step)
        heights = state.radio_map.heights - metres * self._direction(state, velocity, energy)
        known = state.memory.get("known")
        for prior in self.priors:
            heights = prior(np.clip(heights, self.floor, self.ceiling), metres, known)
        heights = np.clip(heights, self.floor, self.ceiling)
        theta, theta_memory = self._theta_step(state, by_theta, self._theta_rate(done))
        sharpness = self._sharpness((state.round + 1) / rounds, noisy=state.filtered > 0)
        radio_map = state.radio_map.moved_to(heights, theta, sharpness)
        memory = {**state.memory, "velocity": velocity, "energy": energy, **theta_memory}
        return ServerState(radio_map, state.round + 1, memory)

    def filter_width(self, state: ServerState, rounds: int) -> float:
        """Half of the filter, as squares count: docs/shaping.md."""
        return self._width(state.round / rounds) / math.sqrt(2)

    def _width(self, done: float) -> float:
        """Of the whole filter over the gradient, after a share ``done`` of the rounds."""
        return self.smoothing + done * (self.last_smoothing - self.smoothing)

    def _sharpness(self, share: float, *, noisy: bool) -> float:
        """The model's sharpness after ``share`` of the rounds."""
        hardened = min(1.0, share / (self.noisy_soft_share if noisy else self.soft_share))
        return self.start_sharpness ** (1 - hardened) * self.sharpness**hardened

    def _theta_rate(self, done: float) -> float:
        """Step of θ after a share ``done`` of the rounds."""
        if self.start_theta_rate is None or done >= _THETA_SETTLES:
            return self.theta_rate
        settled = done / _THETA_SETTLES
        return self.start_theta_rate ** (1 - settled) * self.theta_rate**settled

    def _direction(self, state: ServerState, velocity: Floats, energy: Floats) -> Floats:
        """Where to go, with root mean square 1 over the map."""
        unbiased = energy / (1 - self.energy_memory ** (state.round + 1))
        spread = smoothed(unbiased, self.energy_smoothing)
        damping = self.noisy_damping if state.filtered > 0 else self.damping
        direction = velocity / np.sqrt(spread + damping * spread.mean() + 1e-300)
        size = np.sqrt(np.mean(direction**2))
        return direction / size if size > 0 else direction

    def _theta_step(
        self, state: ServerState, by_theta: Floats, rate: float
    ) -> tuple[Floats, dict[str, Floats]]:
        """Adam on the laws' gains at 100 m and their slopes, and on offsets."""
        old = state.radio_map
        axes = at_100_m(old.propagation.laws, len(old.offsets))
        gradient = axes @ by_theta
        velocity = blended(state.memory["theta_velocity"], gradient, 0.9)
        energy = blended(state.memory["theta_energy"], gradient**2, 0.999)
        taken = state.round + 1
        step = (velocity / (1 - 0.9**taken)) / (np.sqrt(energy / (1 - 0.999**taken)) + 1e-8)
        theta = old.theta - rate * (axes.T @ step)
        return theta, {"theta_velocity": velocity, "theta_energy": energy}


def _check_start(start: float, floor: float, ceiling: float) -> None:
    if not floor <= start <= ceiling:
        raise ConfigurationError(
            f"start_height {start:g} m must lie between the floor {floor:g} m"
            f" and the ceiling {ceiling:g} m"
        )


def smoothed(image: Floats, cells: float | tuple[float, ...]) -> Floats:
    """A Gaussian filter with a standard deviation of ``cells``, along all axes or each."""
    from scipy.ndimage import gaussian_filter  # slow to import, needed only while training

    return gaussian_filter(image, cells)


def blended(old: Floats, new: Floats, keep: float) -> Floats:
    """A running mean that keeps a share of what it was."""
    return keep * old + (1 - keep) * new
