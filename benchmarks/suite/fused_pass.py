"""One pass over the paper's setting: loss and per-user gradients, against JAX.

JAX gets the cells under every link traced beforehand, padded to one length, and is timed
without that; ours traces them within the pass. Both use all cores.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from suite._figure import Figure, alternate
from veilmap._util import threads
from veilmap.data.measurements import Measurements
from veilmap.errors import VeilmapError
from veilmap.federation import NoiseAwareStep, train
from veilmap.geometry.tracing import trace
from veilmap.model.gradients import local_gradients
from veilmap.model.radio_map import RadioMap, log_distance
from veilmap.scenes.scene import Scene

_FAR_ABOVE = 1e4  # height of padding links, in metres: over every obstacle
_BANDWIDTH_BYTES = 400_000_000


def measure(seed: int) -> list[Figure]:
    """Ratios at the start of training and late in it, agreement, share of the memory limit."""
    scene = Scene.synthetic(seed)
    data = scene.measure(seed=seed)
    start = RadioMap(scene.grid, np.full(scene.grid.cells, NoiseAwareStep().start_height))
    late = train(data, scene.grid, rounds=100).radio_map
    reference = jax_gradients(data, scene)
    bandwidth = _read_bandwidth()
    figures = []
    for name, radio_map in (("at the start", start), ("after 100 rounds", late)):
        ours, theirs = alternate(
            partial(local_gradients, radio_map, data),
            partial(reference, radio_map),
        )
        limit = _bytes_to_move(data, radio_map) / bandwidth
        apart = _difference(radio_map, data, reference)
        figures += [
            Figure(f"fused pass {name}: JAX time / ours", theirs / ours, "×", at_least=10),
            Figure(f"fused pass {name}: difference from JAX", apart, at_most=1e-5),
            Figure(f"fused pass {name}: share of the streaming limit", limit / ours),
            Figure(f"fused pass {name}: ours", 1e3 * ours, "ms"),
            Figure(f"fused pass {name}: JAX", 1e3 * theirs, "ms"),
        ]  # fmt: skip
    return [*figures, Figure("memory bandwidth, reading", bandwidth / 1e9, "GB/s")]


def jax_gradients(data: Measurements, scene: Scene) -> Callable[[RadioMap], Any]:
    """The same loss and per-user gradients as a jitted, vmapped JAX function of a map."""
    try:
        import jax
    except ImportError:
        raise VeilmapError("this benchmark needs JAX: pip install 'veilmap[bench]'") from None
    import jax.numpy as jnp

    cells, heights, log_d, gain = (jnp.asarray(a) for a in _padded(data, scene))

    def loss(h, theta, cells, z, log_d, gain):
        s = jnp.exp(-jnp.sum(jax.nn.softplus(h[cells] - z), axis=-1))
        clear = theta[0] + theta[1] * log_d
        blocked = theta[2] + theta[3] * log_d
        return jnp.mean((gain - (clear * s + blocked * (1 - s))) ** 2)

    per_user = jax.jit(
        jax.vmap(jax.value_and_grad(loss, argnums=(0, 1)), in_axes=(None, None, 0, 0, 0, 0))
    )

    def gradients(radio_map: RadioMap) -> Any:
        h = jnp.asarray(radio_map.heights.ravel(), dtype=jnp.float32)
        theta = jnp.asarray(radio_map.propagation.as_array(), dtype=jnp.float32)
        return jax.block_until_ready(per_user(h, theta, cells, heights, log_d, gain))

    return gradients


def _padded(data: Measurements, scene: Scene) -> tuple[NDArray, ...]:
    """Cells and link heights of every link, padded, as (users, links, longest walk)."""
    links = data.links
    crossings = trace(scene.grid, links.user_xyz, links.bs_xyz)
    lengths = np.diff(crossings.offsets)
    shape = (links.users, len(data) // links.users, int(lengths.max()))
    used = np.arange(shape[2]) < lengths[:, None]
    cells = np.zeros((len(data), shape[2]), dtype=np.int32)
    heights = np.full((len(data), shape[2]), _FAR_ABOVE, dtype=np.float32)
    cells[used], heights[used] = crossings.cells, crossings.heights
    log_d = log_distance(links.user_xyz, links.bs_xyz).astype(np.float32)
    gain = links.gain_db.astype(np.float32)
    return (
        cells.reshape(shape),
        heights.reshape(shape),
        log_d.reshape(shape[:2]),
        gain.reshape(shape[:2]),
    )


def _difference(
    radio_map: RadioMap, data: Measurements, reference: Callable[[RadioMap], Any]
) -> float:
    """Largest difference of any gradient entry, relative to the largest entry."""
    ours = local_gradients(radio_map, data).height_gradient
    theirs = np.asarray(reference(radio_map)[1][0])
    return float(np.abs(ours - theirs).max() / np.abs(ours).max())


def _bytes_to_move(data: Measurements, radio_map: RadioMap) -> float:
    """What any such pass must at least move: links and map in, one gradient row a user out."""
    links = data.links
    read = links.user_xyz.nbytes + links.bs_xyz.nbytes + links.gain_db.nbytes
    return read + radio_map.heights.nbytes * (1 + links.users)


def _read_bandwidth() -> float:
    """Bytes per second that all threads together read from memory."""
    array = np.ones(_BANDWIDTH_BYTES // 8)
    bounds = threads.even_parts(len(array))
    (seconds,) = alternate(
        lambda: threads.run_parts(lambda start, stop: array[start:stop].sum(), bounds), repeats=2
    )
    return array.nbytes / seconds
