"""The server: Flower's own averaging, unchanged."""

from pathlib import Path

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from heat_map import GRID

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Average the phones' maps for some rounds and write the last one down."""
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=2, min_available_nodes=2)
    result = strategy.start(
        grid,
        ArrayRecord({"heat": Array(np.zeros(GRID.shape))}),
        num_rounds=int(context.run_config.get("rounds", 12)),
    )
    out = Path(str(context.run_config.get("out", "heat.npy")))
    np.save(out, result.arrays["heat"].numpy())
