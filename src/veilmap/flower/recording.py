"""Record what anyone's Flower app receives and sends, for an audit.

    @app.train(mods=[RecordingMod(folder="recorded"), ...])
    def train(message, context): ...

Put it first, so that it sees what leaves the node after all other mods.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from flwr.app import ConfigRecord, Context, Message

from veilmap.auditing.recordings import Answer
from veilmap.errors import ConfigurationError
from veilmap.federation.messages import ClientId

_COUNTER = "veilmap-recording"


@dataclass(frozen=True, kw_only=True)
class RecordingMod:
    """A Flower mod that writes the arrays of each message and of its reply into a folder.

    `veilmap.auditing.recordings.recorded_rounds` reads it. What is recorded shows where users are:
    this is for studies with data of one's own, not for people's devices.

    Parameters
    ----------
    folder : path
    user : callable from Context to an id, optional
        Whose answer it is; by default the node's id.
    sends : "update" or "model"
        Whether the reply holds a change (a gradient), or a whole model.
    """

    folder: str | Path
    user: Callable[[Context], ClientId] = lambda context: context.node_id
    sends: Literal["update", "model"] = "model"

    def __post_init__(self) -> None:
        if self.sends not in ("update", "model"):
            raise ConfigurationError(f"sends is 'update' or 'model', not {self.sends!r}", "sends")

    def __call__(
        self, message: Message, context: Context, call_next: Callable[[Message, Context], Message]
    ) -> Message:
        """Let the app answer, and write down what it was sent and what it sends."""
        received = _arrays(message)
        reply = call_next(message, context)
        if not reply.has_error():
            counted = context.state.config_records.get(_COUNTER, ConfigRecord())
            number = int(str(counted.get("round", 0)))
            context.state[_COUNTER] = ConfigRecord({"round": number + 1})
            whole = self.sends == "model"
            answer = Answer(self.user(context), number, received, _arrays(reply), whole)
            answer.save(Path(self.folder))
        return reply


def _arrays(message: Message) -> dict[str, np.ndarray]:
    """All arrays of a message by their names."""
    records = message.content.array_records.values()
    return {name: np.array(own.numpy()) for record in records for name, own in record.items()}
