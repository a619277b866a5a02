"""Writes docs/results.md and its Chinese page from the newest result of `benchmarks.task_results`.

.venv/bin/python -m benchmarks.task_report
"""

from pathlib import Path
from typing import Any

from benchmarks.provenance import RESULTS, newest, source
from benchmarks.report import table

DOCS = Path(__file__).parents[1] / "docs"
MAIN = ["xlnet", "scratch", "bert"]
STUDY = ["cut to 512", "shaw", "absolute"]
PERCENT = {"accuracy", "f1", "exact_match", "ndcg", "pearson", "spearman", "mcc"}
"""Metrics from 0 to 1, shown from 0 to 100."""

ENGLISH = {
    "file": "results.md",
    "other": "[中文](results.zh-CN.md)",
    "title": "# Results on real data, from small models pretrained here",
    "budget": (
        "Every number on this page comes from one command that pretrains the models, fine-tunes them and measures the "
        "baselines beside them: `python -m benchmarks.task_results --data DATA --work WORK` "
        "([the result](../benchmarks/results/{name}), {commit}, {date}). The data sets are not part of the project.\n\n"
        "- **Models**: {layers} layers of width {width}, {heads} heads, new tokenisers (English 8,000 pieces, "
        "Chinese 6,000), pretrained from nothing on {tokens:.1f} million tokens each ({steps:,} updates of 32 x 64 "
        "tokens), one thread. English text: WikiText-2 and unlabelled training reviews of IMDb; Chinese: People's "
        "Daily of January 1998 and the training texts of the sets below. No test text is read.\n"
        "- **Columns**: *XLNet* is pretrained with permutations and reads documents to the end, in segments of 512 "
        "with a memory of 512; *not pretrained* is the same model with new weights; *BERT objective* has the same size "
        "and budget; its learned positions end at 64, so it reads segments of 64, each for itself, and takes their "
        "mean. The trivial answer and the classical method are named below the table.\n"
        "- Test parts, in percent where the metric goes to 1; ± is the standard deviation over seeds, where "
        "several were run; without it, there is one run, with seed 0, and differences of a point or two say little.\n"
        "- The whole took {minutes:.0f} minutes on two cores."
    ),
    "columns": ["data", "task, metric", "used", "trivial", "classical", "XLNet", "not pretrained", "BERT objective"],
    "classical": (
        "What is trivial and what is classical: {list}. Documents that are all alike count as ranked last, so that "
        "trivial ranking has 0."
    ),
    "study": "## Reading to the end, and other positions",
    "study_text": (
        "The same XLNet that reads only the first 512 tokens of each document, and XLNets of the same size and budget "
        "with Shaw's clipped relative positions and with sinusoidal absolute ones (all read to the end where not "
        "said otherwise). How far their pretraining came is in the next table: who learned little there brings little."
    ),
    "study_columns": ["data", "XLNet, to the end", "first 512 tokens", "Shaw's positions", "absolute positions"],
    "pretraining": "## Pretraining",
    "pretraining_columns": ["model", "validation loss (nats a target)", "tokens", "seconds"],
    "findings": "## What this says",
}
CHINESE = {
    "file": "results.zh-CN.md",
    "other": "[English](results.md)",
    "title": "# 真实数据上的结果（在本机预训练的小模型）",
    "budget": (
        "本页所有数字都出自同一条命令，它预训练并微调模型，同时评测作为对照的基线："
        "`python -m benchmarks.task_results --data DATA --work WORK`"
        "（[结果文件](../benchmarks/results/{name})，{commit}，{date}）。数据集不属于本项目。\n\n"
        "- **模型**：{layers} 层，宽度 {width}，{heads} 个头；分词器为新训练（英文 8,000 个子词，中文 6,000 个）；"
        "每个模型从零开始，用 {tokens:.0f} 万个词元预训练（{steps:,} 次更新，每次 32 x 64 个词元），单线程。"
        "英文文本：WikiText-2 与 IMDb 训练集的无标签影评；"
        "中文文本：1998 年 1 月《人民日报》与下列数据集的训练文本。从未读过测试文本。\n"
        "- **各列**：*XLNet* 用排列目标预训练，借助长 512 的记忆，以 512 个词元的片段读完整篇文档；"
        "*未预训练*是权重全新的同一模型；*BERT 目标*的大小与预算相同；"
        "它的可学习位置只到 64，因此每 64 个词元的片段各自阅读，再取平均。"
        "平凡方法与经典方法的名称见表下。\n"
        "- 均为测试集上的结果；最大值为 1 的指标以百分数给出；± 是多个随机种子的标准差（如果运行了多个）；"
        "没有 ± 的只运行了一次，种子为 0，一两个百分点的差别说明不了什么。\n"
        "- 全部运行在两个核上用了 {minutes:.0f} 分钟。"
    ),
    "columns": ["数据", "任务，指标", "使用的部分", "平凡方法", "经典方法", "XLNet", "未预训练", "BERT 目标"],
    "classical": "平凡方法与经典方法分别是：{list}。排序时，得分全部相同的文档按最差的顺序计算，因此平凡方法为 0。",
    "study": "## 读到结尾，以及其他位置编码",
    "study_text": (
        "同一个 XLNet，但只读每篇文档的前 512 个词元；以及大小与预算相同、"
        "分别使用 Shaw 的截断相对位置编码和正弦绝对位置编码的 XLNet（未注明的都读到结尾）。"
        "它们的预训练进展见下一张表：预训练中学得少的，带来的提升也少。"
    ),
    "study_columns": ["数据", "XLNet，读到结尾", "前 512 个词元", "Shaw 位置编码", "绝对位置编码"],
    "pretraining": "## 预训练",
    "pretraining_columns": ["模型", "验证损失（每个目标，奈特）", "词元数", "秒"],
    "findings": "## 这说明什么",
}
IN_CHINESE = {
    "1,200 of 9,600; test whole": "9,600 中的 1,200；全部测试集",
    "300 documents; test whole": "300 篇文档；全部测试集",
    "2,500 of 10,748; dev as test": "10,748 中的 2,500；以验证集为测试集",
    "600 of 10,142 questions; 300 of dev": "10,142 个问题中的 600；验证集中的 300",
    "dev of the original, cut: 2,100 and 550": "原验证集，分为 2,100 和 550",
    "600 of 25,000; 600 of test": "25,000 中的 600；测试集中的 600",
    "5,000 of 67,349; dev as test": "67,349 中的 5,000；以验证集为测试集",
    "3,000 of 14,041; test whole": "14,041 中的 3,000；全部测试集",
    "4,000 of 5,749; test whole": "5,749 中的 4,000；全部测试集",
    "300 questions; 150 of test": "300 个问题；测试集中的 150",
    "4,000 of 29,000 pairs; 100 of test": "29,000 对中的 4,000；测试集中的 100",
    "3,600, 400 and 846 of 4,846": "4,846 中的 3,600、400 和 846",
    "majority class": "多数类",
    "TF-IDF, logistic regression": "TF-IDF 加逻辑回归",
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


def shown(value: float, row: dict[str, Any]) -> str:
    """Return a value for display. Answers are scored from 0 to 100 already, as in their official scripts."""
    percent = row["metric"] in PERCENT and row["task"] != "answer"
    return f"{100 * value:.1f}" if percent else f"{value:.1f}"


def cell(row: dict[str, Any], variant: str) -> str:
    """Return mean and deviation of a variant; a dash if it was not run."""
    if variant not in row:
        return "-"
    found = row[variant]
    spread = "" if found["deviation"] is None else f" ± {shown(found['deviation'], row)}"
    return shown(found["mean"], row) + spread


def findings(result: dict[str, Any], *, chinese: bool) -> list[str]:
    """Return findings that are counted from the table, so that the text never claims more than the numbers."""
    rows = [row for row in result["rows"] if "xlnet" in row]
    lines = []
    for other in ("scratch", "bert"):
        both = [row for row in rows if other in row]
        better, worse = [], []
        for row in both:
            gap = row["xlnet"]["mean"] - row[other]["mean"]
            spread = [row[variant]["deviation"] for variant in ("xlnet", other)]
            # With one seed, the variance of the difference is unknown.
            sure = None not in spread and abs(gap) > sum(spread)
            (better if gap > 0 else worse).append(f"**{row['name']}**" if sure else row["name"])
        if chinese:
            name = {"scratch": "未预训练的同一模型", "bert": " BERT 目标"}[other]
            lines.append(
                f"- 与{name}相比：{len(both)} 个数据集中，{len(better)} 个更好"
                f"（{'、'.join(better) or '无'}），其余没有更好（{'、'.join(worse) or '无'}）。"
            )
        else:
            name = {"scratch": "the same model without pretraining", "bert": "the BERT objective"}[other]
            lines.append(
                f"- Against {name}: better on {len(better)} of {len(both)} sets ({', '.join(better) or 'none'}), "
                f"not better on {', '.join(worse) or 'none'}."
            )
    classical = [row["name"] for row in rows if row["xlnet"]["mean"] > row["baselines"][-1]["value"]]
    if chinese:
        return [
            *lines,
            f"- 与经典方法相比：{len(rows)} 个数据集中，{len(classical)} 个更好（{'、'.join(classical) or '无'}）。"
            "在这样的规模下不如 TF-IDF，本身就是一个结论。",
            "- 粗体：差别大于两者的标准差之和。其余的差别可能只是偶然。",
        ]
    return [
        *lines,
        f"- Against the classical method: better on {len(classical)} of {len(rows)} "
        f"({', '.join(classical) or 'none'}). At this scale, losing to TF-IDF is a finding.",
        "- Bold: the difference is larger than both standard deviations together. The others may be chance.",
    ]


def page(result: dict[str, Any], words: dict[str, Any]) -> str:
    chinese = words is CHINESE
    shape = result["shape"]
    first = next(iter(result["pretraining"].values()))
    parts = [
        words["title"],
        words["other"],
        words["budget"].format(
            name=result["file"],
            date=result["date"],
            commit=_commit(result, chinese=chinese),
            layers=shape["num_layers"],
            width=shape["width"],
            heads=shape["num_heads"],
            tokens=first["tokens"] / (1e4 if chinese else 1e6),
            steps=result["steps"],
            minutes=result["seconds"] / 60,
        ),
    ]
    lines = [
        [
            row["name"],
            f"{row['task']}, {row['metric']}",
            IN_CHINESE[row["part"]] if chinese else row["part"],
            *(shown(one["value"], row) for one in (row["baselines"][0], row["baselines"][-1])),
            *(cell(row, variant) for variant in MAIN),
        ]
        for row in result["rows"]
    ]
    parts.append(table(words["columns"], lines))
    named = {(row["baselines"][0]["name"], row["baselines"][-1]["name"]): row["task"] for row in result["rows"]}
    if chinese:
        methods = "；".join(f"{task}：{IN_CHINESE[low]} / {IN_CHINESE[high]}" for (low, high), task in named.items())
    else:
        methods = "; ".join(f"{task}: {low} / {high}" for (low, high), task in named.items())
    parts.append(words["classical"].format(list=methods))
    parts += [words["findings"], "\n".join(findings(result, chinese=chinese))]
    studied = [row for row in result["rows"] if any(variant in row for variant in STUDY)]
    if studied:
        lines = [[row["name"], cell(row, "xlnet"), *(cell(row, variant) for variant in STUDY)] for row in studied]
        parts += [words["study"], words["study_text"], table(words["study_columns"], lines)]
    lines = [
        [name, f"{found['validation_loss']:.3f}", f"{found['tokens']:,}", f"{found['seconds']:.0f}"]
        for name, found in result["pretraining"].items()
    ]
    parts += [words["pretraining"], table(words["pretraining_columns"], lines)]
    return "\n\n".join(parts) + "\n"


def _commit(result: dict[str, Any], *, chinese: bool) -> str:
    if not chinese:
        return source(result)
    if result.get("commit") is None:
        return "未记录提交"
    return f"提交 {result['commit'][:10]}{'，代码有改动' if result['changed'] else ''}"


def main() -> None:
    result = newest(RESULTS, "task-results")
    if result is None:
        raise SystemExit("a page of results needs a result; got none. Run benchmarks.task_results.")
    for words in (ENGLISH, CHINESE):
        path = DOCS / str(words["file"])
        path.write_text(page(result, words), encoding="utf-8")
        print(f"written: docs/{path.name}")


if __name__ == "__main__":
    main()
