"""Checks accrued.csv."""

import csv

EXPECTED = [['bond', 'days', 'accrued'],
 ['alpha', '60', '75.00'],
 ['beta', '103', '42.92'],
 ['gamma', '165', '206.25'],
 ['delta', '60', '10.00']]


def found():
    with open("accrued.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
