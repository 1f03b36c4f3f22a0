import csv
from decimal import ROUND_HALF_UP, Decimal


def read(name):
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


fixings = sorted((r["date"], Decimal(r["rate"])) for r in read("fixings.csv"))
lines = ["trade,dollars"]
for trade in read("trades.csv"):
    rates = [rate for day, rate in fixings if day <= trade["date"]][-1:]
    dollars = Decimal(trade["euros"]) * sum(rates) / len(rates)
    lines.append(f"{trade['trade']},{dollars.quantize(Decimal('0.01'), ROUND_HALF_UP)}")
with open("dollars.csv", "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
