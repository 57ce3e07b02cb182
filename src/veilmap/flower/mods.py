"""Noise for anyone's Flower app whose parameters have positions.

    app = ClientApp()

    @app.train(mods=[GeometryAlignedMod(grid=grid, position=where_i_am, noise_budget=10)])
    def train(message, context): ...

The mod takes the arrays with one entry per cell out of the reply, clips them, adds noise whose
spatial shape hides where the node is from an attacker who takes centroids, and sends the
rest on as it is. It is obfuscation: no (ε, δ) is promised, and an attacker who knows the
mechanism can undo it (docs/privacy.md).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message

from veilmap._util.arrays import Floats
from veilmap.errors import ConfigurationError
from veilmap.geometry.grid import Grid
from veilmap.privacy import noise
from veilmap.privacy.mechanisms import GeometryAligned, UniformNoise
from veilmap.privacy.mechanisms.upload import UploadNoise

Position = tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class NoiseMod(ABC):
    """A Flower mod that adds a mechanism's noise to arrays over a grid.

    Parameters
    ----------
    grid : Grid
        Where the entries of the arrays are: M cells, row by row from the south-west.
    position : callable from Context to (x, y)
        Where this node is, in the grid's metres; it is used here and never sent.
    arrays : names, optional
        Which arrays of the reply to protect; by default every one with M entries.
    sends : "update" or "model"
        Whether the reply holds a change (a gradient), or a whole model that replaces the one
        received: then the noise goes to the difference of the two.
    clip : float
        C: bound of the norm of what is protected.
    noise_budget : float
        μ: noise energy over the energy of what it hides.
    seed : int, optional
        Fixes the noise, for studies; by default it comes from the operating system.
    """

    grid: Grid
    position: Callable[[Context], Position]
    arrays: Sequence[str] | None = None
    sends: Literal["update", "model"] = "update"
    clip: float = 1.0
    noise_budget: float = 10.0
    seed: int | None = None

    def __post_init__(self) -> None:
        if self.sends not in ("update", "model"):
            raise ConfigurationError(f"sends is 'update' or 'model', not {self.sends!r}")
        _ = self.mechanism  # checks its parameters

    @property
    @abstractmethod
    def mechanism(self) -> UploadNoise:
        """What makes the noise."""

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Let the app answer, then protect what it sends."""
        before = _arrays(message, self.grid) if self.sends == "model" else {}
        reply = call_next(message, context)
        if reply.has_error():
            return reply
        place = np.array(self.position(context), dtype=np.float64)
        protected = 0
        for record, name, values in self._chosen(reply):
            base = before.get(name) if self.sends == "model" else np.zeros_like(values)
            if base is None:
                raise ConfigurationError(
                    f"the model received has no array {name!r} to compare with"
                )
            noisy = base + self._noisy(values - base, place, context, name)
            record[name] = Array(noisy.astype(record[name].numpy().dtype))
            protected += 1
        if protected == 0:
            raise ConfigurationError(
                f"the reply has no array of {self.grid.cells} entries to protect: nothing is sent"
            )
        return reply

    def _chosen(self, reply: Message) -> Iterator[tuple[ArrayRecord, str, Floats]]:
        for record in reply.content.array_records.values():
            for name in list(record):
                values = record[name].numpy()
                if self.arrays is None and values.size != self.grid.cells:
                    continue
                if self.arrays is not None and name not in self.arrays:
                    continue
                if values.size != self.grid.cells:
                    raise ConfigurationError(
                        f"array {name!r} has {values.size} entries, the grid has"
                        f" {self.grid.cells} cells"
                    )
                yield record, name, values.astype(np.float64)

    def _noisy(self, values: Floats, place: Floats, context: Context, name: str) -> Floats:
        # A counter in the node's own state: the same noise is never used twice.
        counts = context.state.config_records.get("veilmap", ConfigRecord())
        times = int(str(counts.get(name, 0)))
        context.state["veilmap"] = ConfigRecord({**counts, name: times + 1})
        draw = noise.draw(self.seed, f"{context.node_id}/{name}", times)
        sent = self.mechanism.protect(values.reshape(1, -1), self.grid, place[None], [draw])
        return sent.uploads.reshape(values.shape)


@dataclass(frozen=True, kw_only=True)
class UniformNoiseMod(NoiseMod):
    """The same noise in every cell; parameters as in `NoiseMod`."""

    @property
    def mechanism(self) -> UniformNoise:
        """Σσ² = μ‖ḡ‖², evenly."""
        return UniformNoise(noise_budget=self.noise_budget, clip=self.clip)


@dataclass(frozen=True, kw_only=True)
class GeometryAlignedMod(NoiseMod):
    """Noise that leans away from the node; parameters as in `NoiseMod`, and the trade-off ρ."""

    tradeoff: float = 1.0

    @property
    def mechanism(self) -> GeometryAligned:
        """σ² along a plane that misleads a centroid attacker."""
        return GeometryAligned(
            noise_budget=self.noise_budget, tradeoff=self.tradeoff, clip=self.clip
        )


def _arrays(message: Message, grid: Grid) -> dict[str, Floats]:
    """The received arrays with one entry per cell, by name."""
    return {
        name: array.numpy().astype(np.float64)
        for record in message.content.array_records.values()
        for name, array in record.items()
        if array.numpy().size == grid.cells
    }
