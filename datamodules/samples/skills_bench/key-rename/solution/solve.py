import json

NAMES = {"colour": "color", "centre": "center", "grey": "gray"}


def renamed(value):
    if isinstance(value, dict):
        return {NAMES.get(key, key): renamed(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [renamed(inner) for inner in value]
    return value


with open("old.json", encoding="utf-8") as file:
    found = renamed(json.load(file))
with open("new.json", "w", encoding="utf-8") as file:
    json.dump(found, file)
