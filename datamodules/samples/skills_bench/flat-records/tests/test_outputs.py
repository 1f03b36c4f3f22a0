"""Checks records.json."""

import json

EXPECTED = [{'id': '1', 'title': 'Ledger | Volume 1', 'note': 'bound in cloth'},
 {'id': '2', 'title': 'Maps', 'note': None},
 {'id': '3', 'title': 'Letters, 1801', 'note': '\t see box 4'},
 {'id': '4', 'title': None, 'note': 'line one\nline two'},
 {'id': '5', 'title': 'Back\\slash', 'note': '~~ is text'},
 {'id': '6', 'title': '', 'note': 'empty is not missing'}]


def found():
    with open("records.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
