"""The client's app: reads its own measurements, answers broadcasts, sends nothing else."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

from veilmap._util.plain import to_plain
from veilmap.data.measurements import Measurements
from veilmap.errors import ConfigurationError
from veilmap.federation.client import Clients
from veilmap.federation.messages import Update
from veilmap.flower import records
from veilmap.flower.records import Question
from veilmap.flower.secagg import account, masking
from veilmap.flower.secagg.enrolment import Enrolment
from veilmap.flower.secagg.session import RECORD, Announcement, introduction
from veilmap.flower.secagg.whole_numbers import Scale
from veilmap.privacy.mechanisms import AggregateGaussian, Mechanism


@dataclass(frozen=True)
class Own:
    """What a node keeps to itself; its data are never sent.

    The mechanism is the node's own choice: a server that could choose it could switch it off.
    Without a noise ``seed``, which is for studies, noise comes from the operating system. With an
    ``enrolment`` the node answers only masked, so that the server sees nothing but sums.
    """

    data: Measurements
    mechanism: Mechanism
    seed: int | None = None
    enrolment: Enrolment | None = None


def client_app(own: Callable[[Context], Own]) -> ClientApp:
    """An app for nodes whose data and mechanism ``own`` finds."""
    app = ClientApp()

    @app.query()
    def introduce(message: Message, context: Context) -> Message:
        """Say whom this node speaks for."""
        mine = own(context)
        users = mine.data.users.tolist()
        if mine.enrolment is not None and len(users) != 1:
            raise ConfigurationError(
                f"in a sum every user has a node of their own, and this one has {len(users)} users"
            )
        content = records.names(users)
        if mine.enrolment is not None:
            signed = introduction(message.metadata.dst_node_id, users)
            told = ConfigRecord()
            told["name"], told["signature"] = mine.enrolment.name, mine.enrolment.sign(signed)
            content.config_records[RECORD] = told
        return Message(content, reply_to=message)

    @app.train()
    def train(message: Message, context: Context) -> Message:
        """Protected gradients of those users who were asked, or a stage of a masked sum."""
        mine = own(context)
        answer = partial(_answer, mine)
        if mine.enrolment is None:
            return answer(message, context)
        return masking.mask(message, context, answer, mine.enrolment, mine.mechanism)

    return app


def _answer(mine: Own, message: Message, context: Context) -> Message:
    """What a node sends, or what it masks before."""
    asked = records.read_question(message.content)
    asked.broadcast.check()
    if mine.enrolment is None:
        return Message(records.answer(_updates(mine, asked)), reply_to=message)
    announced = Announcement.read(context.state)
    content = _to_be_masked(mine, mine.enrolment, asked, announced)
    return Message(content, reply_to=message)


def _updates(mine: Own, asked: Question) -> list[Update]:
    """The answers of those of a node's users who were asked."""
    taken = np.isin(mine.data.users, asked.users)
    if not taken.any():
        return []
    chosen = mine.data.users[taken].tolist()
    clients = Clients(chosen, mine.data.links.of_users(taken), mine.mechanism, mine.seed)
    # What users know of their own answers (loss, norms) stays here.
    return clients.answer(asked.broadcast)[0]


def _to_be_masked(
    mine: Own, enrolment: Enrolment, asked: Question, announced: Announcement
) -> RecordDict:
    """The one user's answer as the vector that SecAgg+ masks, paid for before it is computed."""
    if asked.mechanism != to_plain(mine.mechanism):
        raise ConfigurationError(
            f"the server reads sums of {asked.mechanism}, this node's are of"
            f" {to_plain(mine.mechanism)}: give both the same settings"
        )
    if list(asked.users) != mine.data.users.tolist():
        raise ConfigurationError(f"this node does not speak for {', '.join(map(str, asked.users))}")
    scale = Scale.of(mine.mechanism, announced.nodes)
    enrolment.enter(announced.session, account.CHARGED, mine.mechanism)
    return masking.vector(_packed(mine, asked, scale))


def _packed(mine: Own, asked: Question, scale: Scale) -> np.ndarray:
    """The user's answer in whole numbers; under a promise there always is one.

    Whether something fails here may depend on the data. A server that were told of it would have
    learnt something that no noise covers, so that the answer is then noise alone.
    """
    try:
        return scale.pack(_updates(mine, asked)[0])
    except Exception:
        if not isinstance(mine.mechanism, AggregateGaussian):
            raise
        logging.getLogger(__name__).exception("this round's answer of this node is noise alone")
        users = mine.data.users.tolist()
        clients = Clients(users, mine.data.links, mine.mechanism, mine.seed)
        return scale.pack(clients.noise_alone(asked.broadcast)[0])
