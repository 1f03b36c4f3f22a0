"""Checks utc.csv."""

import csv

EXPECTED = [['shift', 'start', 'end', 'hours'],
 ['s1', '2025-03-29T21:30', '2025-03-30T05:30', '8.00'],
 ['s2', '2025-06-01T19:00', '2025-06-02T03:00', '8.00'],
 ['s3', '2025-06-02T04:00', '2025-06-02T12:30', '8.50'],
 ['s4', '2025-12-31T17:15', '2026-01-01T01:15', '8.00'],
 ['s5', '2025-10-25T22:00', '2025-10-26T06:45', '8.75'],
 ['s6', '2025-07-04T06:00', '2025-07-04T14:20', '8.33']]


def found():
    with open("utc.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
