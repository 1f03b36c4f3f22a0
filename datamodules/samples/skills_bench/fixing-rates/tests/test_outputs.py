"""Checks dollars.csv."""

import csv

EXPECTED = [['trade', 'dollars'],
 ['t1', '1043.00'],
 ['t2', '2692.50'],
 ['t3', '430.80'],
 ['t4', '1302.54'],
 ['t5', '52.50']]


def found():
    with open("dollars.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
