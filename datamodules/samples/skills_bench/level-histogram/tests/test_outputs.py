"""Checks levels.json."""

import json

EXPECTED = {'debug': 1, 'info': 3, 'warning': 2, 'error': 3}


def found():
    with open("levels.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
