"""Writes docs/results.md and its Chinese page from the newest results of `benchmarks.task_results`.

.venv/bin/python -m benchmarks.task_report
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, Result, newest, source
from benchmarks.report import table
from benchmarks.task_data import SETS

DOCS = Path(__file__).parents[1] / "docs"
PERCENT = {"accuracy", "f1", "exact_match", "ndcg", "pearson", "spearman", "mcc"}
"""Metrics from 0 to 1, shown from 0 to 100."""
PRETRAINED, JOINED, NEW = "pretrained", "with n-grams", "new weights"

ENGLISH = {
    "file": "results.md",
    "other": "[中文](results.zh-CN.md)",
    "title": "# Results of the packaged models on real data",
    "budget": (
        "Every number on this page comes from `python -m benchmarks.task_results --data DATA --work WORK`, which "
        "fine-tunes the packaged XLNet of the language with the defaults of `segue finetune`, and measures classical "
        "methods on the same rows. No setting is chosen for a data set. The data sets are not part of the project.\n\n"
        "- **Models**: `xlnet-mini-en` and `xlnet-mini-zh`, 4 layers of width 256 ([models](models.md)). *New weights* "
        "is the same model without pretraining. *With n-grams*: the model and TF-IDF together (`--wide`).\n"
        "- **Trivial and classical** methods are named below the table; of two classical methods, the better one on "
        "the test rows is shown. Their penalties are chosen on the validation rows.\n"
        "- Test rows, in percent where the metric goes to 1; ± is the standard deviation over seeds. Without it, there "
        "is one run, with seed 0, and differences of a point or two say little. Weights are chosen on the validation "
        "rows."
    ),
    "columns": ["data", "task, metric", "used", "trivial", "classical", "model", JOINED, NEW],
    "classical": (
        "What is trivial and what is classical: {list}. Documents that are all alike count as ranked last, so that "
        "trivial ranking has 0."
    ),
    "findings": "## What this says",
    "time": "## Time and provenance",
    "time_columns": ["data", "rows learned", "minutes", "new weights, minutes", "measured"],
    "time_text": "Minutes of one core, for one run, from the model's name to the measured test rows.",
    "none": "none",
    "join": ", ",
    "unmeasured": "Not measured with these models yet: {list}.",
}
CHINESE = {
    "file": "results.zh-CN.md",
    "other": "[English](results.md)",
    "title": "# 自带模型在真实数据上的结果",
    "budget": (
        "本页所有数字都出自 `python -m benchmarks.task_results --data DATA --work WORK`："
        "它用 `segue finetune` 的默认设置微调相应语言的自带 XLNet，并在同样的数据上评测经典方法。"
        "没有为任何数据集单独选择设置。数据集不属于本项目。\n\n"
        "- **模型**：`xlnet-mini-en` 与 `xlnet-mini-zh`，4 层，宽度 256（[模型](models.zh-CN.md)）。"
        "*全新权重*是未经预训练的同一模型。*加 n-gram*：模型与 TF-IDF 共同作答（`--wide`）。\n"
        "- **平凡方法与经典方法**的名称见表下；有两种经典方法时，列出在测试集上较好的一种。"
        "它们的惩罚系数在验证集上选择。\n"
        "- 均为测试集上的结果；最大值为 1 的指标以百分数给出；± 是多个随机种子的标准差。"
        "没有 ± 的只运行了一次，种子为 0，一两个百分点的差别说明不了什么。权重在验证集上选择。"
    ),
    "columns": ["数据", "任务，指标", "使用的部分", "平凡方法", "经典方法", "模型", "加 n-gram", "全新权重"],
    "classical": "平凡方法与经典方法分别是：{list}。排序时，得分全部相同的文档按最差的顺序计算，因此平凡方法为 0。",
    "findings": "## 这说明什么",
    "time": "## 时间与出处",
    "time_columns": ["数据", "训练行数", "分钟", "全新权重，分钟", "出处"],
    "time_text": "单核、单次运行的分钟数，从模型名称到测试集结果。",
    "none": "无",
    "join": "、",
    "unmeasured": "尚未用这些模型评测：{list}。",
}
IN_CHINESE = {
    "whole": "全部",
    "whole, cut": "全部，自行划分",
    "whole; dev as test": "全部；以验证集为测试集",
    "3,200 of 10,142 questions; 1,000 of dev as test": "10,142 个问题中的 3,200；以验证集中的 1,000 为测试集",
    "dev, as no other part is at hand, cut": "验证集（手头没有其他部分），自行划分",
    "4,500 of 25,000; 5,000 of test": "25,000 中的 4,500；测试集中的 5,000",
    "41,000 of 67,349; dev as test": "67,349 中的 41,000；以验证集为测试集",
    "1,100 of 12,889 questions; 500 of test": "12,889 个问题中的 1,100；测试集中的 500",
    "20,000 of 29,000 pairs; 300 of test": "29,000 对中的 20,000；测试集中的 300",
    "majority class": "多数类",
    "TF-IDF, logistic regression": "TF-IDF 加逻辑回归",
    "NB-SVM": "NB-SVM",
    "TF-IDF of both, logistic regression": "两段文本的 TF-IDF 加逻辑回归",
    "mean": "均值",
    "cosine of TF-IDF": "TF-IDF 的余弦",
    "usual tag of each token": "每个词最常见的标签",
    "logistic regression over a window": "窗口上的逻辑回归",
    "first sentence": "第一句",
    "nearest sentence by TF-IDF": "TF-IDF 最近的一句",
    "all documents alike": "所有文档得分相同",
    "the source": "源文本",
    "target of the nearest source": "最近的源文本的目标",
}
"""Translations of the English names in results: the parts of data sets that were used, and the baselines. A name
without a translation is a KeyError."""


def newest_rows(folder: Path = RESULTS) -> list[Result]:
    """Return the newest result of each data set that has one, in the order of `SETS`."""
    found = [newest(folder, f"task-{one.name}") for one in SETS]
    return [row for row in found if row is not None]


def shown(value: float, row: Result) -> str:
    """Return a value for display. Answers are scored from 0 to 100 already, as in their official scripts."""
    percent = row["metric"] in PERCENT and row["task"] != "answer"
    return f"{100 * value:.1f}" if percent else f"{value:.1f}"


def cell(row: Result, variant: str) -> str:
    """Return mean and deviation of a variant; a dash if it was not run."""
    if variant not in row:
        return "-"
    found = row[variant]
    spread = "" if found["deviation"] is None else f" ± {shown(found['deviation'], row)}"
    return shown(found["mean"], row) + spread


def classical(row: Result) -> dict[str, Any]:
    """Return the better one of the classical methods."""
    best: dict[str, Any] = max(row["baselines"][1:], key=lambda one: one["value"])
    return best


def findings(rows: Sequence[Result], words: dict[str, Any]) -> list[str]:
    """Return findings that are counted from the table, so that the text never claims more than the numbers."""
    chinese = words is CHINESE

    def named(chosen: Sequence[Result]) -> str:
        return str(words["join"].join(row["name"] for row in chosen)) or str(words["none"])

    both = [row for row in rows if NEW in row]
    new = [row for row in both if row[PRETRAINED]["mean"] > row[NEW]["mean"]]
    old = [row for row in rows if row[PRETRAINED]["mean"] > classical(row)["value"]]
    joined = [row for row in rows if JOINED in row]
    best = [row for row in joined if row[JOINED]["mean"] >= max(row[PRETRAINED]["mean"], classical(row)["value"])]
    if chinese:
        return [
            f"- 与全新权重相比：{len(both)} 个数据集中，{len(new)} 个更好（{named(new)}）。",
            f"- 模型单独与经典方法相比：{len(rows)} 个数据集中，{len(old)} 个更好（{named(old)}）。",
            f"- 加 n-gram：{len(joined)} 个分类数据集中，{len(best)} 个不低于模型与经典方法（{named(best)}）。",
        ]
    return [
        f"- Against new weights: better on {len(new)} of {len(both)} sets ({named(new)}).",
        f"- The model alone against the classical method: better on {len(old)} of {len(rows)} ({named(old)}).",
        f"- With n-grams: level with or above both the model and the classical method on {len(best)} of the "
        f"{len(joined)} sets with classes ({named(best)}).",
    ]


def page(rows: Sequence[Result], words: dict[str, Any]) -> str:
    chinese = words is CHINESE
    lines = [
        [
            row["name"],
            f"{row['task']}, {row['metric']}",
            IN_CHINESE[row["part"]] if chinese else row["part"],
            shown(row["baselines"][0]["value"], row),
            shown(classical(row)["value"], row),
            *(cell(row, variant) for variant in (PRETRAINED, JOINED, NEW)),
        ]
        for row in rows
    ]
    parts = [words["title"], words["other"], words["budget"], table(words["columns"], lines)]
    methods = {row["task"]: [one["name"] for one in row["baselines"]] for row in rows}
    semicolon, colon, comma = ("；", "：", "、") if chinese else ("; ", ": ", ", ")
    named = semicolon.join(
        f"{task}{colon}{_named(names[0], chinese)} / {comma.join(_named(name, chinese) for name in names[1:])}"
        for task, names in methods.items()
    )
    parts.append(words["classical"].format(list=named))
    missing = [one.name for one in SETS if one.name not in {row["name"] for row in rows}]
    if missing:
        parts.append(words["unmeasured"].format(list=words["join"].join(missing)))
    parts += [words["findings"], "\n".join(findings(rows, words)), words["time"], words["time_text"]]
    lines = [
        [
            row["name"],
            f"{row['rows']['train']:,}",
            *(_minutes(row, variant) for variant in (PRETRAINED, NEW)),
            f"[{row['date']}](../benchmarks/results/{row['file']}), {source(row)}",
        ]
        for row in rows
    ]
    parts.append(table(words["time_columns"], lines))
    return "\n\n".join(parts) + "\n"


def _named(name: str, chinese: bool) -> str:
    return IN_CHINESE[name] if chinese else name


def _minutes(row: Result, variant: str) -> str:
    if variant not in row:
        return "-"
    found = row[variant]
    return f"{sum(found['processor_seconds']) / len(found['processor_seconds']) / 60:.1f}"


def main() -> None:
    rows = newest_rows()
    if not rows:
        raise SystemExit("a page of results needs a result; got none. Run benchmarks.task_results.")
    for words in (ENGLISH, CHINESE):
        path = DOCS / str(words["file"])
        path.write_text(page(rows, words), encoding="utf-8")
        print(f"written: docs/{path.name}")


if __name__ == "__main__":
    main()
