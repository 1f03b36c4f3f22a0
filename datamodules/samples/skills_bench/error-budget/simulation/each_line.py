import json

calls = []
last = {}
with open("calls.log", encoding="utf-8") as file:
    for line in file:
        time, name, status = line.split()
        time, status = float(time), int(status)
        if name in last and time - last[name][0] <= -1:
            calls[last[name][1]] = status
        else:
            calls.append(status)
        place = last[name][1] if name in last and time - last[name][0] <= -1 else len(calls) - 1
        last[name] = (time, place)
failures = sum(status >= 500 or status == 429 for status in calls)
with open("budget.json", "w", encoding="utf-8") as file:
    json.dump({"calls": len(calls), "failures": failures, "availability": round(1 - failures / len(calls), 4)}, file)
