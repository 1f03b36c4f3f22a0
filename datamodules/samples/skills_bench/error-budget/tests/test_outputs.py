"""Checks budget.json."""

import json

EXPECTED = {'calls': 9, 'failures': 4, 'availability': 0.5556}


def found():
    with open("budget.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
