"""From labelled rows to a classifier, next to the baselines that it has to beat.

    python examples/classify.py MODEL [ROWS.csv]

MODEL is any pretrained model: a packaged name, a run, or a folder. Each row of the table has a text and a label;
without a table, a few rows about hotels are generated.
"""

import sys
from itertools import product
from pathlib import Path

import segue

GOOD, BAD = ["干净", "舒服", "安静", "漂亮"], ["很脏", "太吵", "破旧", "难闻"]
MADE = [
    {"text": f"{place}{word}，{end}", "label": label}
    for label, words in (("好评", GOOD), ("差评", BAD))
    for place, word, end in product(["房间", "浴室", "大堂"], words, ["服务一般。", "早餐还行。", "位置方便。"])
]

rows = Path(sys.argv[2]) if len(sys.argv) > 2 else MADE
result = segue.finetune(sys.argv[1], rows, task="classify", settings={"train.seed": 1})
accuracy = result.metrics["valid"]["accuracy"]
print(f"validation accuracy {accuracy.value:.3f}; the report is {result.run / 'report.html'}")

texts = ["房间很安静，服务一般。", "大堂破旧，位置方便。"]
for text, answer in zip(texts, result.predict(texts), strict=True):
    print(text, answer["prediction"], f"{answer['probability']:.2f}")
