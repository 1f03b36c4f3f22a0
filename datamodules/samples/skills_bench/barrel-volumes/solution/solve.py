import csv

LITRES = {"bbl": 158.987, "bbl-dry": 115.627, "gal": 3.78541, "gal-imp": 4.54609, "keg": 58.67, "m3": 1000.0}
DRINKS = {"wine", "beer", "rum"}

with open("stock.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("litres.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("product", "litres"))
    for row in rows:
        litres = LITRES[row["unit"]]
        if row["unit"] == "bbl" and row["product"] in DRINKS:
            litres = 119.240
        writer.writerow((row["product"], f"{float(row['amount']) * litres:.1f}"))
