"""What nodes of somebody's federated app received and sent, as files: written and read here.

One file an answer: arrays `received/NAME` and `sent/NAME`, which of its answers it is to the node,
and the user. Answers to the same parameters belong to one round. A recording shows where users
are, as an audit of it does: it is for studies.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from veilmap._util import archives, checks
from veilmap._util.arrays import Array, Floats
from veilmap._util.plain import DAMAGED
from veilmap.attacks.any_model import SeenGradients
from veilmap.auditing.seen_gradients import Recorded
from veilmap.errors import DataError
from veilmap.federation.messages import ClientId
from veilmap.model.gradient_models import GradientModel
from veilmap.model.gradient_models.base import flat

_RECEIVED, _SENT = "received/", "sent/"
_ONLY = "parameters"  # a model whose parameters are one vector


@dataclass(frozen=True, eq=False)
class Answer:
    """What one user was sent in one round, and what it answered.

    ``number`` counts the user's answers, from 0.
    """

    user: ClientId
    number: int
    received: Mapping[str, Array]
    sent: Mapping[str, Array]
    whole_model: bool  # the answer is a model that replaces the one received

    def save(self, folder: Path) -> None:
        """Write the answer, whole or not at all."""
        facts = {"user": self.user, "number": self.number, "whole-model": self.whole_model}
        arrays = {_RECEIVED + name: part for name, part in self.received.items()}
        arrays |= {_SENT + name: part for name, part in self.sent.items()}
        path = folder / f"{self.number:05d}-{str(self.user).replace('/', '_')}.npz"
        archives.save(path, arrays | {"facts": np.array(json.dumps(facts))}, compressed=True)

    @classmethod
    def load(cls, path: Path) -> "Answer":
        """What `save` wrote."""
        try:
            content = archives.load(path)
            facts = json.loads(str(content["facts"]))
            received, sent = (
                {name.removeprefix(part): own
                 for name, own in content.items() if name.startswith(part)}
                for part in (_RECEIVED, _SENT)
            )  # fmt: skip
            return cls(facts["user"], int(facts["number"]), received, sent, facts["whole-model"])
        except DAMAGED as error:
            raise DataError(f"{path} is no recorded answer: {error}") from error

    def gradient(self, model: GradientModel, learning_rate: float) -> tuple[Floats, Floats]:
        """What the model was, and the gradient that the answer stands for, both (M,)."""
        before, after = (_in_order(model, own) for own in (self.received, self.sent))
        return before, (before - after) / learning_rate if self.whole_model else after


def recorded_rounds(
    folder: str | Path, model: GradientModel, *, learning_rate: float = 1.0
) -> list[Recorded]:
    """What an audit may see of a recording, a round each.

    Parameters
    ----------
    folder : path
        As `veilmap.flower.RecordingMod` wrote it.
    model : GradientModel
        Its parameters have the names of the app's arrays.
    learning_rate : float
        Of the users' steps: where whole models are sent, their change over this is a gradient, for
        one step exactly and for several roughly.
    """
    rate = checks.number("learning_rate", learning_rate, above=0)
    answers = [Answer.load(path) for path in sorted(Path(folder).glob("[0-9]*.npz"))]
    if not answers:
        raise DataError(f"{folder} holds no recorded answer")
    by_parameters: dict[bytes, list[tuple[ClientId, Floats]]] = {}
    for answer in answers:
        before, gradient = answer.gradient(model, rate)
        by_parameters.setdefault(before.tobytes(), []).append((answer.user, gradient))
    return [
        _round(number, np.frombuffer(before), own)
        for number, (before, own) in enumerate(by_parameters.items(), 1)
    ]


def _round(number: int, before: Floats, answers: Sequence[tuple[ClientId, Floats]]) -> Recorded:
    users, gradients = zip(*answers, strict=True)
    seen = SeenGradients(before, tuple((user,) for user in users), np.array(gradients))
    return Recorded(seen, f"recorded round {number}")


def _in_order(model: GradientModel, arrays: Mapping[str, Array]) -> Floats:
    """A recording's arrays as one vector, in the model's order."""
    known = model.parameters
    wanted = known if isinstance(known, Mapping) else {_ONLY: known}
    for name, part in wanted.items():
        if name not in arrays or np.size(arrays[name]) != np.size(part):
            raise DataError(f"the recording has no array {name!r} with {np.size(part)} entries")
    return flat({name: np.asarray(arrays[name], dtype=np.float64) for name in wanted})
