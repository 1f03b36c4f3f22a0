"""Checks counts.csv."""

import csv

EXPECTED = [['word', 'count'], ['the', '8'], ['and', '5'], ['heron', '3'], ['river', '3'], ['still', '3']]


def found():
    with open("counts.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
