"""Questions and answers of a small shop, in English and Chinese."""

import json
from pathlib import Path
from typing import Any

ENGLISH = {
    "parcel": [
        "Your parcel is shown under Orders.",
        *("where is my parcel", "when does my parcel arrive", "track my parcel", "my parcel has not come"),
        *("how do I follow a parcel", "parcel is late"),
    ],
    "refund": [
        "Refunds take three days.",
        *("I want a refund", "when do I get my money back", "refund my order please", "how long does a refund take"),
        *("money back for a broken thing", "refund has not arrived"),
    ],
    "password": [
        "Use the link Forgotten password.",
        *("I forgot my password", "reset password", "cannot log in, wrong password", "how to change the password"),
        *("my password does not work", "new password please"),
    ],
    "card": [
        "Block the card in the app.",
        *("I lost my card", "my card was stolen", "block my card", "somebody took my card", "the card is gone"),
        "lost card what now",
    ],
    "hours": [
        "We are open from nine to six.",
        *("when are you open", "opening hours", "are you open on Sunday", "what time do you close"),
        *("opening time of the shop", "hours on Monday"),
    ],
    "invoice": [
        "Invoices are sent by mail.",
        *("where is my invoice", "I need an invoice", "send the invoice again", "invoice for my tax"),
        *("download the invoice", "invoice with my company name"),
    ],
}
CHINESE = {
    "快递": [
        "请在订单页面查看物流。",
        *("我的快递到哪里了", "快递什么时候到", "怎么查快递", "快递还没有收到", "快递太慢了"),
    ],
    "退款": [
        "退款需要三个工作日。",
        *("我要退款", "退款什么时候到账", "怎么申请退款", "退款还没收到", "钱什么时候退给我"),
    ],
    "密码": [
        "请使用忘记密码功能。",
        *("我忘记密码了", "怎么修改密码", "密码不对登录不了", "重置密码", "密码忘了怎么办"),
    ],
    "发票": [
        "发票会发到您的邮箱。",
        *("怎么开发票", "我要发票", "发票在哪里下载", "发票抬头怎么改", "电子发票没有收到"),
    ],
}
OUTSIDE = ("what is the weather tomorrow", "tell me a joke", "今天天气怎么样", "who won the football match")


def rows() -> list[dict[str, Any]]:
    """A row for each question."""
    found: list[dict[str, Any]] = []
    for intent, (answer, *questions) in {**ENGLISH, **CHINESE}.items():
        found += [{"question": question, "answer": answer, "intent": intent} for question in questions]
    order = {"answer": "Order {order} is on its way.", "intent": "order"}
    found += [{"question": f"where is order {{order}}{end}", **order} for end in ("", " please", " now")]
    complaint = ("complaint about a colleague", "I want to complain about staff")
    found += [{"question": question, "answer": None, "intent": "complaint"} for question in complaint]
    return found + [{"question": question, "answer": None, "intent": None} for question in OUTSIDE]


def write_rows(path: Path) -> Path:
    """As JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows()), encoding="utf-8")
    return path
