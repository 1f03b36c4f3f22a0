import json
import re

SIGNS = {"p": "|", "n": "\n", "t": "\t"}


def value(field):
    if field == "~~":
        return None
    return re.sub(r"\\(.)", lambda m: SIGNS.get(m[1], m[1]), field)


with open("export.flat", encoding="utf-8") as file:
    head, *rows = [line.split("|") for line in file.read().splitlines()]
records = [dict(zip(head, map(value, row))) for row in rows]
with open("records.json", "w", encoding="utf-8") as file:
    json.dump(records, file, ensure_ascii=False)
