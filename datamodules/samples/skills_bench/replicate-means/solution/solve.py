import csv
from statistics import mean, median


def judged(values):
    if len(values) == 2:
        return values if abs(values[0] - values[1]) <= 0.15 * mean(values) else []
    centre = median(values)
    kept = [v for v in values if abs(v - centre) <= 0.15 * centre]
    return kept if len(kept) >= len(values) - 1 else []


with open("replicates.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("means.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("sample", "mean", "used"))
    for row in rows:
        kept = judged([float(row[k]) for k in "abc" if row[k]])
        writer.writerow((row["sample"], f"{mean(kept):.3f}" if kept else "", len(kept)))
