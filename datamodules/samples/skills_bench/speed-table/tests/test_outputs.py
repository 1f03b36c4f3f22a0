"""Checks ms.csv."""

import csv

EXPECTED = [['vehicle', 'ms'],
 ['train', '56.00'],
 ['van', '25.00'],
 ['tram', '15.00'],
 ['ferry', '9.25'],
 ['bicycle', '5.50']]


def found():
    with open("ms.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
