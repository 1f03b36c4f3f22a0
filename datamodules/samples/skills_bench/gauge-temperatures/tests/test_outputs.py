"""Checks celsius.csv."""

import csv

EXPECTED = [['time', 'celsius'],
 ['00:00', '25.00'],
 ['00:10', '26.00'],
 ['00:20', ''],
 ['00:30', '28.94'],
 ['00:40', '-40.00'],
 ['00:50', '-105.00'],
 ['01:00', '-41.00'],
 ['01:10', '0.00'],
 ['01:20', '']]


def found():
    with open("celsius.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
