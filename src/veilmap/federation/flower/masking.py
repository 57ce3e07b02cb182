"""A node's side of secure aggregation: Flower's SecAgg+, and checks of what the server asks.

Flower's client does what it is told. Here it does so only if its own promise holds: the noise
of the others that it counts on must be in any sum that is opened, so it counts its peers'
keys itself instead of believing the server.
"""

import hashlib
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.client.mod import secaggplus_mod
from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
from flwr.common.secure_aggregation.secaggplus_constants import (
    RECORD_KEY_CONFIGS,
    RECORD_KEY_STATE,
    Key,
    Stage,
)
from flwr.compat.common.recorddict_compat import fitres_to_recorddict
from numpy.typing import NDArray

from veilmap.errors import VeilmapError
from veilmap.federation.flower import sharing
from veilmap.federation.flower.whole_numbers import MODULUS, Scale
from veilmap.mechanisms import Mechanism

CallNext = Callable[[Message, Context], Message]


def mask(message: Message, context: Context, call_next: CallNext, mechanism: Mechanism) -> Message:
    """Answer one stage of SecAgg+, or refuse it; ``call_next`` gives the vector to mask."""
    if RECORD_KEY_CONFIGS not in message.content:
        raise VeilmapError("this node takes part in sums only, and was asked for a single upload")
    asked: dict[str, Any] = dict(message.content.config_records[RECORD_KEY_CONFIGS])
    if asked.get(Key.STAGE) == Stage.SETUP:
        _check_setup(asked, mechanism)
    if asked.get(Key.STAGE) == Stage.UNMASK:
        _check_unmasking(asked, context)
    return secaggplus_mod(message, context, call_next)


def scale_of(context: Context, mechanism: Mechanism, cohort: int) -> Scale:
    """The scale of the round that was set up, once its peers suffice for a ``cohort``'s noise."""
    agreed = context.state.config_records[RECORD_KEY_STATE]
    least, threshold = mechanism.least_answers(cohort), _whole(agreed, "threshold")
    if threshold < least:
        raise VeilmapError(
            f"the server says that {cohort} users were asked, whose sum needs {least} answers, but"
            f" it can be opened with {threshold}: nothing is sent"
        )
    return Scale.of(mechanism, _whole(agreed, "sample_num"))


def vector(values: NDArray[np.float64]) -> RecordDict:
    """A vector as Flower's SecAgg+ takes it; its weight is the same for everybody."""
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([values]), 1, {})
    return fitres_to_recorddict(result, keep_input=False)


def _check_setup(asked: dict[str, Any], mechanism: Mechanism) -> None:
    """Refuse parameters under which a sum could be opened too early, or numbers be cut off."""
    nodes, shares, threshold = (
        _whole(asked, key) for key in (Key.SAMPLE_NUMBER, Key.SHARE_NUMBER, Key.THRESHOLD)
    )
    if nodes < 2 or shares != nodes:
        raise VeilmapError(f"a sum over {nodes} nodes must show every node all {nodes} keys")
    if 2 * threshold <= nodes:
        # Else half of the nodes could be told that one is there, the others that it is gone.
        raise VeilmapError(
            f"{threshold} of {nodes} nodes could open an upload: more than half are needed"
        )
    largest = Scale.of(mechanism, nodes).largest
    ranges = [asked.get(k) for k in (Key.CLIPPING_RANGE, Key.TARGET_RANGE, Key.MOD_RANGE)]
    if ranges != [largest, 2 * largest, MODULUS] or asked.get(Key.MAX_WEIGHT) != 1:
        raise VeilmapError(f"with the ranges {ranges} numbers would be cut off or sums overflow")


def _check_unmasking(asked: dict[str, Any], context: Context) -> None:
    """Never help to open the masks of one node in both ways: that would open its upload."""
    here, gone = (
        list(asked.get(key, [])) for key in (Key.ACTIVE_NODE_ID_LIST, Key.DEAD_NODE_ID_LIST)
    )
    me = context.state.config_records.get(RECORD_KEY_STATE, ConfigRecord()).get("nid")
    if len({*here, *gone}) != len(here) + len(gone) or me not in here:
        raise VeilmapError("the server asks to unmask nodes in a way that would show an upload")


def _whole(values: Any, name: str) -> int:
    value = values.get(name)
    if not isinstance(value, int):
        raise VeilmapError(f"the server sent no whole number as {name}")
    return value


def pseudo_random(
    seed: bytes, bound: int, shapes: list[tuple[int, ...]]
) -> list[NDArray[np.int64]]:
    """Masks below ``bound``, a power of two, out of a secret: AES-256 in counter mode."""
    key = hashlib.sha256(b"veilmap masks" + seed).digest()
    stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor()
    masks = []
    for shape in shapes:
        count = int(np.prod(shape))
        words = np.frombuffer(stream.update(bytes(8 * count)), dtype="<u8")
        masks.append((words & np.uint64(bound - 1)).astype(np.int64).reshape(shape))
    return masks


_CLIENT = "flwr.client.mod.secure_aggregation.secaggplus_mod"
_SERVER = "flwr.server.workflow.secure_aggregation.secaggplus_workflow"


def _replace_parts() -> None:
    """Replace what makes Flower's masks weak and its sharing slow, on both sides.

    Flower 1.41 folds a 256-bit secret to 32 bits and seeds a Mersenne Twister with them: a
    curious server could try all seeds. Version and names are pinned; should they move, this
    fails loudly instead of masking weakly.
    """
    for module, name, part in (
        (_CLIENT, "pseudo_rand_gen", pseudo_random),
        (_SERVER, "pseudo_rand_gen", pseudo_random),
        (_CLIENT, "create_shares", sharing.create_shares),
        (_SERVER, "combine_shares", sharing.combine_shares),
    ):
        target: Any = import_module(module)
        if not hasattr(target, name):
            raise VeilmapError(f"{module} has changed: install flwr >= 1.41, < 1.42")
        setattr(target, name, part)


_replace_parts()
