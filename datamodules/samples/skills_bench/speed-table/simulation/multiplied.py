import csv

with open("speeds.csv", newline="", encoding="utf-8") as file:
    rows = [(r["vehicle"], float(r["kmh"]) * 3.6) for r in csv.DictReader(file)]
rows.sort(key=lambda row: -row[1])
with open("ms.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("vehicle", "ms"))
    writer.writerows((name, f"{speed:.2f}") for name, speed in rows)
