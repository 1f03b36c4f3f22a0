"""Checks slugs.json."""

import json

EXPECTED = {'Über die Brücke': 'ueber-die-bruecke',
 'Salz & Pfeffer': 'salz-und-pfeffer',
 'Maße und Gewichte': 'masse-und-gewichte',
 'Öl: Förderung und Handel im Überblick': 'oel-foerderung-und',
 'Café am See': 'cafe-am-see',
 'Zug 12, Gleis 3': 'zug-12-gleis-3',
 'Grüße & Küsse aus Köln': 'gruesse-und-kuesse-aus',
 'Ein Tag – ein Jahr': 'ein-tag-ein-jahr'}


def found():
    with open("slugs.json", encoding="utf-8") as file:
        return json.load(file)


def test_shape():
    assert type(found()) is type(EXPECTED)
    assert len(found()) == len(EXPECTED)


def test_values():
    assert found() == EXPECTED
