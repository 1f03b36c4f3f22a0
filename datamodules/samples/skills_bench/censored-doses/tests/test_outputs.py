"""Checks summary.json."""

import json

EXPECTED = {'mean': 7.3485, 'n': 8, 'censored': 4}


def found():
    with open("summary.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
