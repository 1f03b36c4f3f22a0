"""Checks pivot.csv."""

import csv

EXPECTED = [['person', '2025-01', '2025-02', '2025-03'],
 ['Ada', '6.0', '8.0', '4.0'],
 ['Ben', '6.0', '2.0', '0.0'],
 ['Cleo', '3.0', '0.0', '5.5']]


def found():
    with open("pivot.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
