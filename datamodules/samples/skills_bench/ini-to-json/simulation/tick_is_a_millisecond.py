import configparser
import json
import re

SWITCHES = {"on": True, "yes": True, "off": False, "no": False}
UNITS = {"t": 1, "m": 60000}


def setting(name, text):
    if duration := re.fullmatch(r"(\d+)([tm])", text):
        return f"{name}_ms", int(duration[1]) * UNITS[duration[2]]
    if name == "wait":
        return "wait_ms", int(text)
    if text in SWITCHES:
        return name, SWITCHES[text]
    if re.fullmatch(r"-?\d+", text):
        return name, int(text)
    if re.fullmatch(r"-?\d+\.\d+", text):
        return name, float(text)
    return name, text


parser = configparser.ConfigParser()
parser.read("service.ini", encoding="utf-8")
found = {s: dict(setting(k, v) for k, v in parser[s].items()) for s in parser.sections()}
with open("service.json", "w", encoding="utf-8") as file:
    json.dump(found, file)
