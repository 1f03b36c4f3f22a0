import csv
from datetime import date, timedelta

with open("hours.csv", newline="", encoding="utf-8") as file:
    rows = [(date.fromisoformat(r["date"]), r["person"], float(r["hours"])) for r in csv.DictReader(file)]
months = sorted({f"{day:%Y-%m}" for day, _, _ in rows})
worked = {(person, f"{day:%Y-%m}") for day, person, hours in rows if hours > 0}
sums = {}
for day, person, hours in rows:
    month = f"{day:%Y-%m}"
    before = f"{day.replace(day=1) - timedelta(days=1):%Y-%m}"
    if day.day <= 7 and (person, before) in worked:
        month = before
    sums[person, month] = sums.get((person, month), 0.0) + hours
people = sorted({person for _, person, _ in rows})
with open("pivot.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("person", *months))
    for person in people:
        writer.writerow((person, *(f"{sums.get((person, m), 0.0):.1f}" for m in months)))
