"""Two mixtures of Gaussians with unequal masses: the least action of WFR is known.

Two narrow components, farther apart than any mass moves, are shifted and change their masses. The
action is then the sum of the closed forms of two atoms (:func:`zoo.sudo_ot.path.wfr_cost`), up to
the square of their width: the least action moves the front of a wide component a little less far
than its back. So their width is small, and its root mean square the same in any dimension.
"""

from collections.abc import Sequence

import numpy as np

from zoo.cell_files import Snapshots

CENTRES = (-3.0, 3.0)  # along the first axis: farther apart than pi delta
SHIFTS = (1.0, 1.4)  # of each component, along the second axis
RATIOS = (1.6, 0.7)  # of masses, last to first
SHARES = (0.4, 0.6)  # of the first snapshot
SPREAD = 0.1  # root mean square distance from the centre
DELTA = 1.4  # the length scale that the task is meant for


def gaussian_wfr(cells: int = 300, dim: int = 2, seed: int | Sequence[int] = 0) -> Snapshots:
    """Draws both snapshots, at the times 0 and 1.

    Args:
        cells: At time 0.
        dim: Dimensions, at least 2.
        seed: Of everything random.

    Returns:
        Snapshots whose numbers of cells are proportional to their masses, with the growth at time 0
        and 1 that the geodesic has.
    """
    rng = np.random.default_rng(seed)
    seen, growth = [], []
    for last in (False, True):
        points, rates = [], []
        for centre, shift, ratio, share in zip(CENTRES, SHIFTS, RATIOS, SHARES, strict=True):
            count = round(cells * share * (ratio if last else 1))
            x = rng.normal(0, SPREAD / np.sqrt(dim), (count, dim))
            x[:, 0] += centre
            x[:, 1] += shift * last
            points.append(x)
            # l' at both ends of m(t) = (1 - t)^2 + ratio t^2 + 2 t (1 - t) sqrt(ratio) c
            c = np.cos(shift / (2 * DELTA))
            rate = 2 - 2 * c / np.sqrt(ratio) if last else 2 * (np.sqrt(ratio) * c - 1)
            rates.append(np.full(count, rate))
        seen.append(np.concatenate(points))
        growth.append(np.concatenate(rates))
    return Snapshots.stack(seen, [0.0, 1.0], rep="gaussian", growth=growth)
