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
        "本页所有数字都出自同一条命令：预训练模型、微调、并测量旁边的基线："
        "`python -m benchmarks.task_results --data DATA --work WORK`"
        "（[结果文件](../benchmarks/results/{name})，{commit}，{date}）。数据集不属于本项目。\n\n"
        "- **模型**：{layers} 层，宽 {width}，{heads} 个头；分词器为新训练（英文 8,000 个片段，中文 6,000 个）；"
        "从零开始，每个模型用 {tokens:.1f} 百万个 token 预训练（{steps:,} 次更新，每次 32 x 64 个 token），单线程。"
        "英文文本：WikiText-2 与 IMDb 训练集的无标签影评；"
        "中文：1998 年 1 月《人民日报》与下列数据集的训练文本。测试文本从未读过。\n"
        "- **各列**：*XLNet* 用排列目标预训练，以 512 为一段、512 的记忆读完整篇文档；"
        "*未预训练* 是同一模型、新权重；*BERT 目标* 大小与预算相同；"
        "它学到的位置只到 64，因此按 64 一段各自阅读，再取平均。"
        "平凡答案与经典方法的名称见表下。\n"
        "- 均为测试部分；取值到 1 的指标以百分数给出；± 是多个随机种子的标准差（若运行了多个）；"
        "没有 ± 的只运行一次，种子为 0，一两个点的差别说明不了什么。\n"
        "- 全部在两个核心上用了 {minutes:.0f} 分钟。"
    ),
    "columns": ["数据", "任务，指标", "使用部分", "平凡", "经典", "XLNet", "未预训练", "BERT 目标"],
    "classical": "平凡与经典方法分别是：{list}。排序中得分全部相同的文档按最坏次序计，因此平凡答案为 0。",
    "study": "## 读到结尾，以及其他位置编码",
    "study_text": (
        "同一个 XLNet 只读每篇文档的前 512 个 token；以及大小与预算相同、"
        "分别使用 Shaw 截断相对位置和正弦绝对位置的 XLNet（未注明者都读到结尾）。"
        "它们预训练到什么程度见下一张表：在那里学得少的，带来的也少。"
    ),
    "study_columns": ["数据", "XLNet，读到结尾", "前 512 个 token", "Shaw 位置", "绝对位置"],
    "pretraining": "## 预训练",
    "pretraining_columns": ["模型", "验证损失（每个目标，纳特）", "token 数", "秒"],
    "findings": "## 这说明什么",
}


def shown(value: float, row: dict[str, Any]) -> str:
    """Answers are scored from 0 to 100 already, as their official scripts do."""
    percent = row["metric"] in PERCENT and row["task"] != "answer"
    return f"{100 * value:.1f}" if percent else f"{value:.1f}"


def cell(row: dict[str, Any], variant: str) -> str:
    """Mean and deviation of a variant; a dash where it was not run."""
    if variant not in row:
        return "-"
    found = row[variant]
    spread = "" if found["deviation"] is None else f" ± {shown(found['deviation'], row)}"
    return shown(found["mean"], row) + spread


def findings(result: dict[str, Any], *, chinese: bool) -> list[str]:
    """Counted from the table, so that the words never say more than the numbers."""
    rows = [row for row in result["rows"] if "xlnet" in row]
    lines = []
    for other in ("scratch", "bert"):
        both = [row for row in rows if other in row]
        better, worse = [], []
        for row in both:
            gap = row["xlnet"]["mean"] - row[other]["mean"]
            spread = [row[variant]["deviation"] for variant in ("xlnet", other)]
            # With one seed, nothing says how much chance there is in the difference.
            sure = None not in spread and abs(gap) > sum(spread)
            (better if gap > 0 else worse).append(f"**{row['name']}**" if sure else row["name"])
        if chinese:
            name = {"scratch": "未预训练的同一模型", "bert": "BERT 目标"}[other]
            lines.append(
                f"- 与{name}相比：{len(both)} 个数据集中有 {len(better)} 个更好"
                f"（{'、'.join(better) or '无'}），其余不更好（{'、'.join(worse) or '无'}）。"
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
            f"- 与经典方法相比：{len(rows)} 个中有 {len(classical)} 个更好（{'、'.join(classical) or '无'}）。"
            "在这样的规模上输给 TF-IDF 是一个发现。",
            "- 粗体：差别大于两者标准差之和。其余的差别可能只是偶然。",
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
            tokens=first["tokens"] / 1e6,
            steps=result["steps"],
            minutes=result["seconds"] / 60,
        ),
    ]
    lines = [
        [
            row["name"],
            f"{row['task']}, {row['metric']}",
            row["part"],
            *(shown(one["value"], row) for one in (row["baselines"][0], row["baselines"][-1])),
            *(cell(row, variant) for variant in MAIN),
        ]
        for row in result["rows"]
    ]
    parts.append(table(words["columns"], lines))
    named = {(row["baselines"][0]["name"], row["baselines"][-1]["name"]): row["task"] for row in result["rows"]}
    parts.append(
        words["classical"].format(list="; ".join(f"{task}: {low} / {high}" for (low, high), task in named.items()))
    )
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
