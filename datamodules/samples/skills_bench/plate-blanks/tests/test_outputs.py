"""Checks corrected.csv."""

import csv

EXPECTED = [['row', '1', '2', '3', '4', '5', '6'],
 ['A', '0.450', '0.435', '0.715', '0.057', '0.028', '0.000'],
 ['B', '0.367', '0.408', '0.740', '0.000', '0.033', '0.002'],
 ['C', '0.027', '0.571', '0.593', '0.000', '0.025', '0.208'],
 ['D', '0.238', '0.235', '0.253', '0.000', '0.037', '0.000']]


def found():
    with open("corrected.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
