"""A phone: moves the shared heat map towards its own visits, and says nothing else."""

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heat_map import GRID, home, visits
from veilmap.flower import GeometryAlignedMod


def node_number(context: Context) -> int:
    """Which phone this is."""
    return int(context.node_config["partition-id"])


hide = GeometryAlignedMod(
    grid=GRID,
    position=lambda context: home(node_number(context)),  # stays on the phone
    sends="model",  # the reply is a whole map: the noise goes to what the phone changed in it
    noise_budget=3,
    tradeoff=1.0,
)

app = ClientApp()


@app.train(mods=[hide])
def train(message: Message, context: Context) -> Message:
    """A fifth of the way from the shared map towards this phone's visits."""
    shared = message.content["arrays"]["heat"].numpy()
    mine = shared + 0.2 * (visits(node_number(context)) - shared)
    content = RecordDict(
        {
            "arrays": ArrayRecord({"heat": Array(np.ascontiguousarray(mine))}),
            "metrics": MetricRecord({"num-examples": 1}),
        }
    )
    return Message(content, reply_to=message)
