import csv
import json
from math import sqrt

values, censored = [], 0
with open("assay.csv", newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        text = row["result"]
        if text == "ND":
            continue
        if text[0] == "<":
            limit = float(text.strip("<*")) / (10 if text.endswith("*") else 1)
            values.append(limit)
        else:
            values.append(float(text.lstrip(">")))
        censored += text[0] in "<>"
summary = {"mean": round(sum(values) / len(values), 4), "n": len(values), "censored": censored}
with open("summary.json", "w", encoding="utf-8") as file:
    json.dump(summary, file)
