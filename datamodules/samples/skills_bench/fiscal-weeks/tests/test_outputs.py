"""Checks weeks.csv."""

import csv

EXPECTED = [['date', 'week'],
 ['2025-04-01', 'FY2025-W01'],
 ['2025-04-02', 'FY2025-W01'],
 ['2025-04-03', 'FY2025-W02'],
 ['2025-03-31', 'FY2025-W01'],
 ['2025-12-31', 'FY2025-W40'],
 ['2026-03-26', 'FY2026-W01'],
 ['2024-03-28', 'FY2024-W01'],
 ['2024-12-25', 'FY2024-W39'],
 ['2025-03-27', 'FY2025-W01'],
 ['2026-04-01', 'FY2026-W01']]


def found():
    with open("weeks.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.reader(file) if row]


def test_header():
    assert found()[0] == EXPECTED[0]


def test_rows():
    assert found()[1:] == EXPECTED[1:]
