"""Puts the reports of ready studies among the pages, in English as they were written and in Chinese.

    segue study NAME --out FOLDER
    python docs/studies.py FOLDER NAME...

A report is made of fixed phrases, tables, and the words of its study, which studies.toml translates; names of variants
and of tasks stay as the study has them. A line of prose without a translation is an error.
"""

import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
HEADERS = {
    "variant": "变体",
    "runs": "运行次数",
    "validation perplexity": "验证困惑度",
    "validation loss": "验证损失",
    "order": "次序",
    "no memory": "无记忆",
    "parameters": "参数量",
    "tokens": "词元数",
    "multiply-adds": "乘加次数",
    "processor seconds": "处理器秒数",
    "processor seconds, tasks": "处理器秒数（任务）",
    "paper (lower is better)": "论文（越低越好）",
    "paper (higher is better)": "论文（越高越好）",
    "ours: validation perplexity": "我们的结果：验证困惑度",
}
CELLS = {"agrees": "一致", "differs": "不同", "not resolved at this size": "在此规模下无法分辨"}
TRANSLATED = tomllib.loads((HERE / "studies.toml").read_text(encoding="utf-8"))
WORDS = {one["english"]: one["chinese"] for one in TRANSLATED["words"]}


def chinese(report: str) -> str:
    """The report with its phrases and the words of its study translated."""
    found, in_code, in_header = [], False, False
    for line in report.splitlines():
        if line.startswith("```"):
            in_code = not in_code
            found.append(line)
        elif in_code or not line:
            found.append(line)
            in_header = True
        elif line.startswith("|"):
            found.append(_row(line, HEADERS if in_header else CELLS))
            in_header = False
        else:
            found.append(_prose(line))
    return "\n".join(found) + "\n"


def _row(line: str, names: dict[str, str]) -> str:
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    cells = [names.get(cell, re.sub(r"(\d+) finished", r"\1 次完成", cell)) for cell in cells]
    cells = [re.sub(r"(\d+) diverged in fine-tuning", r"\1 次微调发散", cell) for cell in cells]
    cells = [re.sub(r"(\d+) diverged", r"\1 次发散", cell).removeprefix("ours: ") for cell in cells]
    cells = [re.sub(r"\((\S+) to (\S+)\)", r"(\1 至 \2)", cell) for cell in cells]
    return f"| {' | '.join(cells)} |"


def _prose(line: str) -> str:
    plain = re.sub(r"\\(.)", r"\1", line)
    start = re.match(r"(# |- )?(.*)", plain)
    assert start is not None
    mark, words = start[1] or "", start[2]
    if words in WORDS:
        return mark + WORDS[words]
    name, colon, about = words.partition(": ")
    if mark == "- " and colon and about in WORDS:
        return f"{mark}{name}：{WORDS[about]}"
    translated = plain
    for phrase in TRANSLATED["phrases"]:
        translated = re.sub(phrase["english"], phrase["chinese"], translated)
    translated = translated.replace("。 ", "。")
    if re.search(r"[a-z]{3,} [a-z]{2,} [a-z]{2,}", re.sub(r"^##.*", "", translated)) and "文本：" not in translated:
        raise SystemExit(f"no translation for: {plain}")
    return translated


def page(report: str, *, name: str, other: str) -> str:
    """The report with a line that leads to the other language, and the command that makes it."""
    title, _, rest = report.partition("\n")
    label, said = ("中文", "Made by ") if other.endswith("zh-CN.md") else ("English", "命令：")
    return f"{title}\n\n[{label}]({other})\n\n{said}`segue study {name} --out studies`\n{rest}"


def main(folder: Path, names: list[str]) -> None:
    """Writes both pages of each study."""
    for name in names:
        report = (folder / f"{name}.md").read_text(encoding="utf-8")
        (HERE / "studies" / f"{name}.md").write_text(
            page(report, name=name, other=f"{name}.zh-CN.md"), encoding="utf-8"
        )
        made = page(chinese(report), name=name, other=f"{name}.md")
        (HERE / "studies" / f"{name}.zh-CN.md").write_text(made, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
