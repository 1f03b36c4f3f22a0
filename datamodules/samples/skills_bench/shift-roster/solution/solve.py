import csv
from datetime import datetime, timedelta, timezone

STATION = timezone(timedelta(hours=3))


def moment(text, start=None):
    if len(text) == 5:
        hour, minute = map(int, text.split(":"))
        found = start.replace(hour=hour, minute=minute)
        return found if found > start else found + timedelta(days=1)
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=STATION)


with open("roster.csv", newline="", encoding="utf-8") as file:
    rows = list(csv.DictReader(file))
with open("utc.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("shift", "start", "end", "hours"))
    for row in rows:
        start = moment(row["start"])
        end = moment(row["end"], start)
        hours = (end - start).total_seconds() / 3600
        utc = [f"{t.astimezone(timezone.utc):%Y-%m-%dT%H:%M}" for t in (start, end)]
        writer.writerow((row["shift"], *utc, f"{hours:.2f}"))
