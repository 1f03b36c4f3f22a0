"""Checks service.json."""

import json

EXPECTED = {'server': {'port': 8080, 'keepalive_ms': 5000, 'verbose': True, 'name': 'alpha'},
 'cache': {'ttl_ms': 120000, 'size': 64, 'enabled': False, 'sweep_ms': 750},
 'limits': {'burst': 5.5, 'wait_ms': 1500, 'strict': True}}


def found():
    with open("service.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
