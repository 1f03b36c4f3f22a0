import json
import re

LEVELS = ["debug", "info", "warning", "error"]
counts = dict.fromkeys(LEVELS, 0)
with open("device.log", encoding="utf-8") as file:
    for letter, mark in re.findall(r"^\[\d+\] ([DIWE])([!~+-]?)", file.read(), re.MULTILINE):
        level = "DIWE".index(letter)
        counts[LEVELS[min(3, max(0, level))]] += 1
with open("levels.json", "w", encoding="utf-8") as file:
    json.dump(counts, file)
