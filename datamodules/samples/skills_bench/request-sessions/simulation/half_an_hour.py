import csv
from datetime import datetime, timedelta

PAUSE = timedelta(minutes=30)
visits = {}
with open("access.log", encoding="utf-8") as file:
    for line in file:
        time, client, path = line.split()
        if path != "/health" and not client.startswith("crawler-"):
            visits.setdefault(client, []).append(datetime.strptime(time, "%H:%M:%S"))
with open("sessions.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(("client", "sessions", "requests"))
    for client, times in sorted(visits.items()):
        times.sort()
        breaks = sum(b - a > PAUSE for a, b in zip(times, times[1:]))
        writer.writerow((client, breaks + 1, len(times)))
