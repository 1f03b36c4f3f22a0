"""Checks new.json."""

import json

EXPECTED = {'color': 'grey',
 'layout': {'center': [1, 2], 'gray': {'color': 7}},
 'list': [{'center': 0}, 'colour']}


def found():
    with open("new.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
