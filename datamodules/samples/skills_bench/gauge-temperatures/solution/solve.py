import csv

with open("gauge.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("celsius.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("time", "celsius"))
    for row in rows:
        raw = int(row["raw"])
        sign = -1 if raw & 0x8000 else 1
        celsius = sign * (raw & 0x7FFF) / 16 - 40
        writer.writerow((row["time"], "" if raw in (4095, 65535) else f"{celsius:.2f}"))
