"""Checks means.csv."""

import csv

EXPECTED = [['sample', 'mean', 'used'],
 ['k1', '10.033', '3'],
 ['k2', '5.050', '2'],
 ['k3', '2.150', '3'],
 ['k4', '8.200', '2'],
 ['k5', '', '0'],
 ['k6', '', '0']]


def found():
    with open("means.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
