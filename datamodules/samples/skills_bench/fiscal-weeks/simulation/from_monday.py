from datetime import date, timedelta


def first_day(year):
    april = date(year, 4, 1)
    return april - timedelta(days=april.weekday())


lines = ["date,week"]
with open("dates.txt", encoding="utf-8") as file:
    for text in file.read().split():
        day = date.fromisoformat(text)
        year = day.year + 1
        while first_day(year) > day:
            year -= 1
        week = (day - first_day(year)).days // 7 + 1
        lines.append(f"{text},FY{year}-W{week:02d}")
with open("weeks.csv", "w", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
