import csv


def read(name):
    with open(name, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


accounts = {}
for row in read("north.csv") + read("south.csv"):
    known = accounts.get(row["account"])
    if known is None or int(row["revision"]) >= int(known["revision"]):
        accounts[row["account"]] = row
kept = [(key, row["balance"]) for key, row in sorted(accounts.items()) if not row["flag"]]
with open("merged.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("account", "balance"), *kept])
