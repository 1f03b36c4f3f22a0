import csv
from datetime import date

with open("spans.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("days.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("name", "days"))
    for row in rows:
        first, last = (date.fromisoformat(row[key]) for key in ("first", "last"))
        writer.writerow((row["name"], (last.year - first.year) * 360 + (last.month - first.month) * 30 + last.day - first.day + 1))
