"""The client's app: reads its own measurements, answers broadcasts, sends nothing else."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from veilmap._describe import described
from veilmap.errors import VeilmapError
from veilmap.federation.client import Clients
from veilmap.federation.flower import masking, records
from veilmap.federation.flower.budget import spend
from veilmap.federation.flower.records import Question
from veilmap.federation.messages import Update
from veilmap.measurements import Measurements
from veilmap.mechanisms import Mechanism


@dataclass(frozen=True)
class Own:
    """What a node keeps to itself.

    Attributes
    ----------
    data : Measurements
        Never sent.
    mechanism : Mechanism
        The node's own choice: a server that could choose it could switch it off.
    seed : int or None
        Of the noise, for studies; None takes it from the operating system.
    sums : bool
        Answer only masked, so that the server sees nothing but sums.
    budget : path or None
        Where the node keeps what it has spent of its own ε.
    """

    data: Measurements
    mechanism: Mechanism
    seed: int | None = None
    sums: bool = False
    budget: Path | None = None


def client_app(own: Callable[[Context], Own]) -> ClientApp:
    """An app for nodes whose data and mechanism ``own`` finds."""

    def mask(message: Message, context: Context, call_next: masking.CallNext) -> Message:
        mine = own(context)
        if not mine.sums:
            return call_next(message, context)
        return masking.mask(message, context, call_next, mine.mechanism)

    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        """Say whom this node speaks for."""
        mine = own(context)
        users = mine.data.users.tolist()
        if mine.sums and len(users) != 1:
            raise VeilmapError(
                f"in a sum every user has a node of their own, and this one has {len(users)} users"
            )
        return Message(records.names(users), reply_to=message)

    @app.train(mods=[mask])
    def train(message: Message, context: Context) -> Message:
        """Protected gradients of those users who were asked."""
        mine, asked = own(context), records.read_question(message.content)
        if mine.sums:
            return Message(_to_be_masked(mine, asked, context), reply_to=message)
        return Message(records.answer(_updates(mine, asked)), reply_to=message)

    return app


def _updates(mine: Own, asked: Question) -> list[Update]:
    """The answers of those of a node's users who were asked."""
    taken = np.isin(mine.data.users, asked.users)
    if not taken.any():
        return []
    chosen = mine.data.users[taken].tolist()
    clients = Clients(chosen, mine.data.links.of_users(taken), mine.mechanism, mine.seed)
    # What users know of their own answers (loss, norms) stays here.
    return clients.answer(asked.broadcast)[0]


def _to_be_masked(mine: Own, asked: Question, context: Context) -> records.RecordDict:
    """The one user's answer as the vector that SecAgg+ masks."""
    if asked.mechanism != described(mine.mechanism):
        raise VeilmapError(
            f"the server reads sums of {asked.mechanism}, this node's are of"
            f" {described(mine.mechanism)}: give both the same settings"
        )
    scale = masking.scale_of(context, mine.mechanism, asked.broadcast.cohort)
    updates = _updates(mine, asked)
    if len(updates) != 1:
        raise VeilmapError(f"this node does not speak for {', '.join(map(str, asked.users))}")
    packed = scale.pack(updates[0])
    if mine.budget is not None:
        spend(mine.budget, mine.mechanism)
    return masking.vector(packed)
