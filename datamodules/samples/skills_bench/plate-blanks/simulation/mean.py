import csv
from statistics import mean as median

with open("plate.csv", newline="", encoding="utf-8") as file:
    head, *rows = list(csv.reader(file))
blank = median(float(row[-1]) for row in rows)
with open("corrected.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(head)
    for name, *wells in rows:
        writer.writerow((name, *(f"{max(0.0, float(w) - blank):.3f}" for w in wells)))
