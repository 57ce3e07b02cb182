"""What each user's own data says about the map: gradients, in one pass over the links."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from veilmap._kernels import degrees
from veilmap._kernels import links as kernels
from veilmap._kernels.arguments import UserGradients
from veilmap._util import checks, threads
from veilmap._util.arrays import Floats, Ints
from veilmap.data.links import Links
from veilmap.model.field import Field
from veilmap.model.radio_map import HasLinks, RadioMap

# Users whose gradients are held at once: 64 rows of 10,000 cells are 5 MB.
_USERS_PER_BLOCK = 64


@dataclass(frozen=True)
class LocalGradients:
    """What each user's own data says about the map.

    F_i, the mean squared error of each user, (N,), in dB²; ∂F_i/∂h, (N, M), in dB² per metre;
    ∂F_i/∂θ, (N, P), in the order of `RadioMap.theta`; and J_i, its number of links, (N,).
    """

    loss: Floats
    height_gradient: Floats
    theta_gradient: Floats
    counts: Ints


def local_gradients(radio_map: RadioMap, data: HasLinks) -> LocalGradients:
    """Loss and gradients of every user, in one pass over the links.

    Each user's row costs M floats; `local_gradient_blocks` holds only some at a time.
    """
    return gradients_of(radio_map, data.links)


def local_gradient_blocks(
    radio_map: RadioMap, data: HasLinks, users: int = _USERS_PER_BLOCK
) -> Iterator[LocalGradients]:
    """The same as `local_gradients`, ``users`` users at a time."""
    for block in data.links.blocks(checks.whole("users", users, least=1)):
        yield gradients_of(radio_map, block)


def gradients_of(radio_map: RadioMap, links: Links) -> LocalGradients:
    """Loss and gradients of every user of ``links``, in one pass."""
    if radio_map.field is not None:
        return _field_gradients(radio_map, radio_map.field, links)
    links = radio_map.without_patterns(links)
    if radio_map.propagation.between or len(radio_map.offsets):
        return _rich_gradients(radio_map, links)
    own, made = links.kernel_links(), _room(radio_map, links.users)

    run = partial(kernels.user_gradients, links=own, model=radio_map.kernel_model, out=made)
    threads.run_parts(lambda a, b: run(start=a, stop=b), threads.even_groups(links.offsets))
    return LocalGradients(made.losses, made.by_heights, made.by_theta, links.counts)


def _room(radio_map: RadioMap, users: int) -> UserGradients:
    """Room for the gradients of so many users."""
    return UserGradients(
        losses=np.empty(users),
        by_heights=np.empty((users, radio_map.grid.cells)),
        by_theta=np.empty((users, 2 * radio_map.propagation.laws)),
    )


def _field_gradients(radio_map: RadioMap, field: Field, links: Links) -> LocalGradients:
    """∂F_i/∂c of a field c at c = 0, then ∂²F_i/∂c², taken to be diagonal; loss as it is now.

    F_i is a square in c, so that these two say all there is to know.
    """
    user = np.repeat(np.arange(links.users), links.counts)
    now = links.gain_db - radio_map.predict_links(links)
    loss = np.bincount(user, now**2, links.users) / links.counts
    left_over = now + field.at(links.user_xyz, links.bs_xyz, links.bs)
    each = 2.0 / links.counts[user]
    numbers, shares = field.shares(links.user_xyz, links.bs_xyz, links.bs)
    by_field = np.zeros((links.users, 2, field.values.size))
    np.add.at(by_field[:, 0], (user[:, None], numbers), (-each * left_over)[:, None] * shares)
    np.add.at(by_field[:, 1], (user[:, None], numbers), each[:, None] * shares)
    unmoved = np.zeros((links.users, len(radio_map.theta)))
    return LocalGradients(loss, by_field.reshape(links.users, -1), unmoved, links.counts)


def _rich_gradients(radio_map: RadioMap, links: Links) -> LocalGradients:
    """The same with more laws than two, or with offsets."""
    numbers = radio_map.offset_numbers(links)
    offsets = np.append(radio_map.offsets.values, 0.0)  # the last one is nobody's
    own = links.kernel_links(links.gain_db - offsets[numbers].sum(axis=0))
    made, residuals = _room(radio_map, links.users), np.empty(len(own.gain))

    given = {"links": own, "model": radio_map.kernel_model, "out": made, "residuals": residuals}
    run = partial(degrees.user_gradients, **given)
    threads.run_parts(lambda a, b: run(start=a, stop=b), threads.even_groups(links.offsets))
    slopes = -2.0 * residuals / np.repeat(links.counts, links.counts)  # ∂F_i/∂γ
    user = np.repeat(np.arange(links.users), links.counts)
    by_offsets = np.zeros((links.users, len(offsets)))
    for own in numbers:
        np.add.at(by_offsets, (user, own), slopes)
    by_theta = np.hstack([made.by_theta, by_offsets[:, :-1]])
    return LocalGradients(made.losses, made.by_heights, by_theta, links.counts)
