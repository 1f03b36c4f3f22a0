import json


def merge(base, layer):
    for key, value in layer.items():
        name = key.lstrip("+!")
        if value is None:
            base.pop(name, None)
        elif key.startswith("+"):
            base[name] = base.get(name, []) + value
        elif isinstance(value, dict):
            base[name] = merge(base.get(name, {}), value)
        else:
            base[name] = value
    return base


effective = {}
for name in ("default", "host", "site"):
    with open(f"{name}.json", encoding="utf-8") as file:
        effective = merge(effective, json.load(file))
with open("effective.json", "w", encoding="utf-8") as file:
    json.dump(effective, file)
