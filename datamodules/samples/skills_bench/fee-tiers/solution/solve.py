import csv

TIERS = [(1000.0, 0.018), (10000.0, 0.012), (float("inf"), 0.007)]
turnover = {}
with open("payments.csv", newline="", encoding="utf-8") as file:
    for row in csv.DictReader(file):
        turnover[row["merchant"]] = turnover.get(row["merchant"], 0.0) + float(row["amount"])


def fee(amount):
    if amount <= 0:
        return 0.0
    total, below = 0.0, 0.0
    for limit, rate in TIERS:
        total += max(0.0, min(amount, limit) - below) * rate
        below = limit
    return min(650.0, max(7.5, total))


with open("fees.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("merchant", "fee"))
    writer.writerows((name, f"{fee(amount):.2f}") for name, amount in sorted(turnover.items()))
