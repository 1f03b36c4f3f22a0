import csv
from statistics import median

with open("plate.csv", newline="", encoding="utf-8") as file:
    head, *rows = list(csv.reader(file))
blank = median(float(row[-1]) for row in rows)
with open("corrected.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(head)
    for name, *wells in rows:
        writer.writerow((name, *(f"{float(w) - blank:.3f}" for w in wells)))
