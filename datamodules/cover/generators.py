"""Instances of our own: a district with sites, an outbreak with locations, and real graphs."""

from __future__ import annotations

import math
from functools import cache

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.spatial import cKDTree

from zoo.cover_files import CoverInstance, neighbourhoods

PROMISES, PROMISE_WEIGHTS = (0.0, 0.3, 0.6, 0.9), (0.4, 0.3, 0.2, 0.1)
NEEDS = (0.5, 0.85)  # of a group's coverable members
GRAPHS = ("karate", "les_miserables", "davis", "florentine")


def district(people: int, sites: int, groups: int, seed: int) -> CoverInstance:
    """People and sites in the unit square; a site covers whoever lives near it.

    Groups are whoever lives near a random centre (with chance 0.6) and others (0.1), so they
    overlap; the first one is everybody. Whom no site reaches is promised nothing.

    Args:
        people: n.
        sites: M.
        groups: l.
        seed: Of everything.
    """
    rng = np.random.default_rng([seed, people, sites])
    home, site = rng.random((people, 2)), rng.random((sites, 2))
    radius = math.sqrt(8 / (math.pi * sites)) * (0.5 + rng.random(sites))
    near = cKDTree(home).query_ball_point(site, radius)
    sizes = np.array([len(found) for found in near])
    element = np.concatenate([np.asarray(found, dtype=np.int64) for found in near])
    a = _matrix(element, np.repeat(np.arange(sites), sizes), (people, sites))
    cost = 0.5 + sizes / max(sizes.mean(), 1e-9) * rng.random(sites)
    centres = rng.random((groups, 2))
    distance = np.linalg.norm(home[None] - centres[:, None], axis=2)
    member = rng.random((groups, people)) < np.where(distance < 0.4, 0.6, 0.1)
    member[0] = True
    return _finish(a, cost, member, rng, f"district_{people}_{seed}", site, home)


def outbreak(people: int, sites: int, groups: int, seed: int) -> CoverInstance:
    """Contacts at home, school and work; a set is a location, with all whom it brings together.

    Households, schools and workplaces are neighbours on a ring, some of whom go elsewhere, as in a
    small world of Watts and Strogatz. Groups are age bands and city quarters, and everybody.

    Args:
        people: n.
        sites: Locations, M: half of them households, a sixth schools, the rest workplaces.
        groups: l.
        seed: Of everything.
    """
    rng = np.random.default_rng([seed, people, sites, 7])
    homes, schools = sites // 2, max(1, sites // 6)
    layers = (homes, schools, sites - homes - schools)
    place = np.arange(people) / people
    age = rng.random(people)
    element, location, first = [], [], 0
    for layer, count in enumerate(layers):
        goes = np.ones(people, dtype=bool) if layer == 0 else (age < 0.3) == (layer == 1)
        who = np.flatnonzero(goes)
        where = (place[who] * count).astype(np.int64)
        moved = rng.random(len(who)) < (0.0, 0.1, 0.3)[layer]
        where[moved] = rng.integers(0, count, moved.sum())
        element.append(who)
        location.append(first + where)
        first += count
    a = _matrix(np.concatenate(element), np.concatenate(location), (people, sites))
    sizes = np.asarray(a.sum(axis=0)).ravel()
    cost = 0.5 + sizes / max(sizes.mean(), 1e-9) * rng.random(sites)
    bands = max(1, (groups - 1) // 2)
    quarters = max(1, groups - 1 - bands)
    member = np.stack(
        [
            np.ones(people, dtype=bool),
            *((age * bands).astype(int) == i for i in range(bands)),
            *((place * quarters).astype(int) == i for i in range(quarters)),
        ]
    )[:groups]
    angle = 2 * math.pi * place
    home = 0.5 + 0.45 * np.stack([np.cos(angle), np.sin(angle)], axis=1)
    return _finish(a, cost, member, rng, f"outbreak_{people}_{seed}", None, home)


def graph(name: str, seed: int) -> CoverInstance:
    """A real social network of the literature; a set is a person with whom it knows.

    Karate club (W. Zachary, 1977), Les Misérables (D. Knuth, 1993), Davis's southern women (1941)
    and Florentine families (J. Padgett, 1986), as networkx has them. Groups: the network's own
    communities (clubs, or those that modularity finds), thirds by degree, and everybody.

    Args:
        name: Of :data:`GRAPHS`.
        seed: Of the promises.
    """
    network = _network(name)
    nodes = list(network)
    number = {node: i for i, node in enumerate(nodes)}
    edges = np.array([(number[u], number[v]) for u, v in network.edges])
    a = neighbourhoods(edges, len(nodes))
    label = np.zeros(len(nodes), dtype=int)
    for i, community in enumerate(_communities(name)):
        label[[number[node] for node in community]] = i
    degree = np.array([network.degree(node) for node in nodes])
    third = np.searchsorted(np.quantile(degree, [1 / 3, 2 / 3]), degree)
    member = [np.ones(len(nodes), dtype=bool)]
    member += [label == i for i in range(label.max() + 1)] + [third == i for i in range(3)]
    rng = np.random.default_rng([seed, len(nodes)])
    spring = nx.spring_layout(network, seed=0)
    home = np.array([spring[node] for node in nodes])
    found = _finish(
        a,
        np.ones(len(nodes)),
        np.stack([m for m in member if m.any()]),
        rng,
        f"{name}_{seed}",
        home,
        home,
    )
    names = [str(node) for node in nodes]
    return CoverInstance(**{**found.__dict__, "sets": names, "elements": names})


@cache
def _network(name: str) -> nx.Graph:
    made = {
        "karate": nx.karate_club_graph,
        "les_miserables": nx.les_miserables_graph,
        "davis": nx.davis_southern_women_graph,
        "florentine": nx.florentine_families_graph,
    }
    return made[name]()


@cache
def _communities(name: str) -> list[frozenset[object]]:
    network = _network(name)
    if name == "karate":
        clubs = nx.get_node_attributes(network, "club")
        return [frozenset(n for n in network if clubs[n] == c) for c in sorted(set(clubs.values()))]
    found = nx.community.greedy_modularity_communities(network)
    return [frozenset(c) for c in found]


def _finish(
    a: csr_array,
    cost: NDArray[np.float64],
    member: NDArray[np.bool_],
    rng: np.random.Generator,
    name: str,
    site: NDArray[np.float64] | None,
    home: NDArray[np.float64],
) -> CoverInstance:
    group, element = np.nonzero(member)
    g = _matrix(group, element, member.shape)
    coverable = np.diff(a.indptr) > 0
    can = g @ coverable.astype(np.int64)
    need = np.floor(can * rng.uniform(*NEEDS, len(can))).astype(np.int64)
    promise = rng.choice(PROMISES, len(coverable), p=PROMISE_WEIGHTS)
    promise[~coverable] = 0
    return CoverInstance(
        a, cost, g, need, promise, name=name, set_places=site, element_places=home
    ).check()


def _matrix(
    rows: NDArray[np.int64], columns: NDArray[np.int64], shape: tuple[int, ...]
) -> csr_array:
    return csr_array((np.ones(len(rows), np.int32), (rows, columns)), shape=shape)
