"""Checks litres.csv."""

import csv

EXPECTED = [['product', 'litres'],
 ['crude', '1907.8'],
 ['wine', '357.7'],
 ['flour', '462.5'],
 ['diesel', '946.4'],
 ['beer', '117.3'],
 ['water', '1500.0'],
 ['crude', '79.5'],
 ['rum', '45.5']]


def found():
    with open("litres.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
