"""The client's app: reads its own measurements, answers broadcasts, sends nothing else."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from veilmap.federation.client import Clients
from veilmap.federation.flower import records
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
    """

    data: Measurements
    mechanism: Mechanism
    seed: int | None = None


def client_app(own: Callable[[Context], Own]) -> ClientApp:
    """An app for nodes whose data and mechanism ``own`` finds."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        """Say whom this node speaks for."""
        return Message(records.names(own(context).data.users.tolist()), reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Protected gradients of those users who were asked."""
        mine, asked = own(context), records.read_question(message.content)
        taken = np.isin(mine.data.users, asked.users)
        if not taken.any():
            return Message(records.answer([]), reply_to=message)
        chosen = mine.data.users[taken].tolist()
        clients = Clients(chosen, mine.data.links.of_users(taken), mine.mechanism, mine.seed)
        # What users know of their own answers (loss, norms) stays here.
        updates, _ = clients.answer(asked.broadcast)
        return Message(records.answer(updates), reply_to=message)

    return app
