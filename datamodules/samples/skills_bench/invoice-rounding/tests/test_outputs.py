"""Checks totals.csv."""

import csv

EXPECTED = [['invoice', 'total'], ['A17', '2.80'], ['B02', '10.08'], ['C40', '12.34'], ['D11', '2.24']]


def found():
    with open("totals.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
