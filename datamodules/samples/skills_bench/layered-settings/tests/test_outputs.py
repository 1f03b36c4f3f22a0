"""Checks effective.json."""

import json

EXPECTED = {'port': 443,
 'tags': ['base', 'host', 'site'],
 'tls': {'min': '1.3', 'ciphers': ['c']},
 'retry': 5,
 'extra': {'a': 1}}


def found():
    with open("effective.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
