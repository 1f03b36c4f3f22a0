"""Checks days.csv."""

import csv

EXPECTED = [['name', 'days'], ['fair', '5'], ['expo', '4'], ['trip', '4'], ['day', '1'], ['term', '303']]


def found():
    with open("days.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
