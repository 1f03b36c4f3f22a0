"""Covering instances: files of every format, derived groups, intersections, generators."""

import numpy as np
import pytest

from tests.fair_cover.case import write_tables
from zoo.cover_files import CoverInstance, read_instance, with_derived_groups
from zoo.datamodules import CoverInstancesDataModule
from zoo.datamodules.cover.datamodule import sample, side_by_side
from zoo.datamodules.cover.generators import GRAPHS, district, graph, outbreak
from zoo.errors import ZooError
from zoo.fair_cover.module import split


def test_tables_are_read(tmp_path):
    found = read_instance(write_tables(tmp_path / "town"))
    assert found.name == "town"
    assert list(found.sets) == ["north", "south", "east"]
    assert found.cost.tolist() == [1, 1.5, 2]
    promise = dict(zip(found.elements, found.promise, strict=True))
    assert promise == {"ann": 0.5, "dan": 0.3, "bob": 0, "cat": 0}
    dense = found.membership.toarray()
    assert {found.elements[i] for i in dense[:, 2].nonzero()[0]} == {"ann", "cat", "dan"}
    assert list(found.group_names) == ["old", "young"]
    assert found.need.tolist() == [1, 2]  # ceil(0.6 * 3)


def test_tables_without_groups_have_everybody(tmp_path):
    folder = write_tables(tmp_path / "t", groups=None, group_targets=None, elements=None)
    found = read_instance(folder)
    assert list(found.group_names) == ["everybody"]
    assert found.need.tolist() == [2]  # floor(0.6 * 4)
    assert found.promise.tolist() == [0] * 4


def test_or_library_rows_and_columns(tmp_path):
    (tmp_path / "scp1.txt").write_text("3 4\n1 2 3 4\n2\n1 2\n1\n3\n2\n 3\n4\n")
    (tmp_path / "rail1.txt").write_text("3 4\n1 1 1\n2 1 1\n3 2 2 3\n4 1 3\n")
    a, b = (read_instance(tmp_path / name, groups=0) for name in ("scp1.txt", "rail1.txt"))
    assert (a.membership.toarray() == b.membership.toarray()).all()
    assert a.membership.toarray().tolist() == [[1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert a.cost.tolist() == b.cost.tolist() == [1, 2, 3, 4]


def test_transactions_and_edges(tmp_path):
    (tmp_path / "basket.dat").write_text("milk bread\nbread eggs tea\n\n")
    found = read_instance(tmp_path / "basket.dat", groups=0)
    assert found.membership.toarray().tolist() == [[1, 0], [1, 1], [0, 1], [0, 1]]
    (tmp_path / "path.edges").write_text("# a path\na b\nb c\n")
    found = read_instance(tmp_path / "path.edges", groups=0)
    assert found.membership.toarray().tolist() == [[1, 1, 0], [1, 1, 1], [0, 1, 1]]


@pytest.mark.parametrize(
    ("name", "text", "pattern"),
    [
        ("a.dat", "\n", "no transactions"),
        ("a.edges", "a\n", "line 1: expected two nodes"),
        ("a.edges", "# none\n", "no edges"),
        ("scp_a.txt", "3 x", "other than numbers"),
        ("a.xls", "", "no known format"),
    ],
)
def test_broken_files(tmp_path, name, text, pattern):
    (tmp_path / name).write_text(text)
    with pytest.raises(ZooError, match=pattern):
        read_instance(tmp_path / name)


def test_derived_groups_are_clusters_and_depend_on_the_seed_alone():
    made = district(80, 30, 3, 0)
    a, b = (with_derived_groups(made.membership, made.cost, 3, 5, "x") for _ in range(2))
    assert (a.groups.toarray() == b.groups.toarray()).all()
    clusters = a.groups.toarray()[1:]
    assert (clusters.sum(axis=0) == 1).all()
    assert (np.diff(a.groups.indptr) > 0).all()


def test_intersections_are_groups_of_their_own():
    made = district(100, 30, 4, 0)
    found = made.with_intersections(min_size=5)
    before, after = made.groups.toarray(), found.groups.toarray()
    assert len(after) > len(before)
    assert (after[: len(before)] == before).all()
    members = {tuple(row) for row in after}
    assert len(members) == len(after)  # no group twice
    for row in after[len(before) :]:
        pairs = [(i, j) for i in range(4) for j in range(i) if (before[i] & before[j] == row).all()]
        assert pairs
        assert row.sum() >= 5


@pytest.mark.parametrize("make", [district, outbreak])
def test_generated_instances_can_be_solved_and_differ_by_seed(make):
    a, b, c = make(60, 20, 4, 0), make(60, 20, 4, 0), make(60, 20, 4, 1)
    assert (a.membership.toarray() == b.membership.toarray()).all()
    assert (a.need == b.need).all()
    assert not np.array_equal(a.cost, c.cost)
    overlap = a.groups.toarray().sum(axis=0)
    assert overlap.max() > 1


@pytest.mark.parametrize("name", GRAPHS)
def test_real_networks(name):
    found = graph(name, 3)
    a = found.membership.toarray()
    assert (a == a.T).all()
    assert (a.diagonal() == 1).all()
    assert len(found.elements) == len(a)


def test_batch_holds_its_instances_unchanged():
    made = [district(40, 12, 3, 0), graph("florentine", 1), outbreak(30, 12, 3, 2)]
    batch = side_by_side([sample(x, 7 + i) for i, x in enumerate(made)])
    for (found, number), wanted, index in zip(split(batch), made, (7, 8, 9), strict=True):
        assert number == index
        assert found.name == wanted.name
        for key in ("membership", "groups"):
            assert (getattr(found, key).toarray() == getattr(wanted, key).toarray()).all()
        for key in ("cost", "need", "promise"):
            assert (getattr(found, key) == getattr(wanted, key)).all()
        assert (found.set_places is None) == (wanted.set_places is None)


def test_splits_share_no_instance():
    data = CoverInstancesDataModule(sizes=[[40, 12, 3]], n_train=3, n_val=3, n_test=3)
    seen = {
        data.build(split)[i]["index"].item() for split in ("train", "val", "test") for i in range(3)
    }
    assert len(seen) == 9


def test_errors_name_at_most_ten():
    made = district(40, 12, 3, 0)
    empty = CoverInstance(
        type(made.membership)(made.membership.shape),
        made.cost,
        made.groups,
        made.need * 0,
        np.ones(40),
    )
    with pytest.raises(ZooError, match=r"promised cover: 0, 1, .*9 and 30 more"):
        empty.check()
