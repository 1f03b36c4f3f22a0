"""Checks sessions.csv."""

import csv

EXPECTED = [['client', 'sessions', 'requests'], ['anna', '3', '5'], ['ben', '2', '2'], ['cleo', '1', '3']]


def found():
    with open("sessions.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
