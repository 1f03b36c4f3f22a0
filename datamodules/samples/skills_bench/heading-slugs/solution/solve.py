import json
import re
import unicodedata

SPELT = {"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "&": " und "}


def slug(heading):
    text = heading.lower()
    for sign, spelt in SPELT.items():
        text = text.replace(sign, spelt)
    text = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.findall(r"[a-z0-9]+", text)
    while len("-".join(words)) > 24:
        words.pop()
    return "-".join(words)


with open("headings.txt", encoding="utf-8") as file:
    headings = file.read().splitlines()
with open("slugs.json", "w", encoding="utf-8") as file:
    json.dump({h: slug(h) for h in headings}, file, ensure_ascii=False)
