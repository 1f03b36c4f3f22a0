import csv
from datetime import date
from decimal import ROUND_HALF_UP, Decimal


def days_between(first, last):
    d1, d2 = min(first.day, 30), min(last.day, 30)
    return 360 * (last.year - first.year) + 30 * (last.month - first.month) + d2 - d1


with open("bonds.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("accrued.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("bond", "days", "accrued"))
    for row in rows:
        days = days_between(*(date.fromisoformat(row[k]) for k in ("last_coupon", "settlement")))
        interest = Decimal(row["face"]) * Decimal(row["rate"]) / 100 * days / 360
        writer.writerow((row["bond"], days, interest.quantize(Decimal("0.01"), ROUND_HALF_UP)))
