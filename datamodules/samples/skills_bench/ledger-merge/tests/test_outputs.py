"""Checks merged.csv."""

import csv

EXPECTED = [['account', 'balance'],
 ['1001', '250.00'],
 ['1002', '81.50'],
 ['1004', '-12.00'],
 ['1005', '5.25']]


def found():
    with open("merged.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
