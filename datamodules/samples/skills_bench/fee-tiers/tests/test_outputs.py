"""Checks fees.csv."""

import csv

EXPECTED = [['merchant', 'fee'],
 ['bakery', '136.50'],
 ['cinema', '126.00'],
 ['florist', '0.00'],
 ['hotel', '650.00'],
 ['kiosk', '7.50']]


def found():
    with open("fees.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
