import csv
from decimal import ROUND_HALF_EVEN, Decimal

CENT = Decimal("0.01")
totals = {}
with open("lines.csv", newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        line = Decimal(row["quantity"]) * Decimal(row["unit_price"])
        totals[row["invoice"]] = totals.get(row["invoice"], Decimal(0)) + line
with open("totals.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("invoice", "total"))
    writer.writerows((name, f"{total.quantize(CENT, ROUND_HALF_EVEN)}") for name, total in totals.items())
