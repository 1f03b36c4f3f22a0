import csv
import re
from collections import Counter

with open("poem.txt", encoding="utf-8") as file:
    words = Counter(re.findall(r"[a-z]+", file.read()))
best = sorted(words.items(), key=lambda item: (-item[1], item[0]))[:5]
with open("counts.csv", "w", newline="", encoding="utf-8") as file:
    csv.writer(file).writerows([("word", "count"), *best])
