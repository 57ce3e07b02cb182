"""Flower's grid without a network: every node is a function from message to reply."""

import copy

from flwr.app import Context, Error, Message, RecordDict
from flwr.app.user_config import UserConfig
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from veilmap.flower.client import client_app
from veilmap.flower.secagg import account
from veilmap.flower.secagg.enrolment import Enrolment, fingerprint, write_key, write_roster

# Flower stamps messages with the task they are sent from.
TaskIdentity.task_id = TaskIdentity.run_id = TaskIdentity.node_id = 1


def enrol(folder, names):
    """Keys, accounts and one roster for nodes of these names."""
    public = {}
    for name in names:
        public[name] = key = write_key(folder / name)
        account.enrol(folder / f"{name}.json", fingerprint(key))
    write_roster(public, folder / "roster")


def enrolment_in(folder, name):
    """What a node of that name knows of itself and its peers."""
    return Enrolment.load(folder / name, folder / "roster", folder / f"{name}.json")


def node(own, number=0):
    """A node that runs our client app on its own data."""
    app = client_app(own)
    context = Context(run_id=1, node_id=number, node_config=UserConfig(), state=RecordDict(),
                      run_config=UserConfig())  # fmt: skip
    return lambda message: app(message, context)


class FakeGrid(Grid):
    """Delivers messages to handlers at once; keeps all that the server receives.

    A handler returns a reply, None for silence, or raises, which Flower turns into an error
    reply.
    """

    def __init__(self, handlers):
        self.handlers = dict(handlers)
        self.received = []
        self.asked = []
        self._waiting = {}
        self._sent = 0

    def set_run(self, run): ...

    @property
    def run(self): ...

    def create_message(self, *args, **kwargs): ...

    def send_and_receive(self, messages, *, timeout=None): ...

    def get_node_ids(self):
        return list(self.handlers)

    def push_messages(self, messages):
        ids = []
        for message in messages:
            self._sent += 1
            name = str(self._sent)
            message.metadata.__dict__["_message_id"] = name
            target = message.metadata.dst_node_id
            self.asked.append((target, message.metadata.message_type))
            try:
                # On the way messages are bytes: nobody shares a record with the sender.
                message.__dict__["_content"] = copy.deepcopy(message.content)
                reply = self.handlers[target](message)
            except Exception as error:
                reply = Message(Error(code=0, reason=str(error)), reply_to=message)
            if reply is not None:
                reply.metadata.__dict__["_reply_to_message_id"] = name
                self._waiting[name] = reply
            ids.append(name)
        return ids

    def pull_messages(self, message_ids):
        replies = [self._waiting.pop(name) for name in message_ids if name in self._waiting]
        self.received += replies
        return replies
