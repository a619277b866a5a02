"""Slots: values beside the words of a template, in a time that grows with the length of the question alone."""

import time

import pytest

from segue.apps.desk.slots import slots_in


@pytest.mark.parametrize(
    ("template", "question", "value"),
    [
        ("where is order {order}", "So, where is order #12345?", "12345"),
        ("where is order {order}", "where is order: A-17, please", "A-17"),
        ("where is order {order} in transit", "where is order 12in34 in transit", "12in34"),
        ("订单{order}到哪里了", "订单 12345 到哪里了", "12345"),
        ("{order}到哪里了", "A17到哪里了", "A17"),
        ("{order} has not come", "my 77 has not come", "77"),
        ("我住在{order}", "我住在北京。", "北京"),
        ("where is order {order} now", "where is order now", None),
        ("where is order {order}", "where is ordering", None),
        ("where is order {order}", "where is order …", None),
        ("订单{order}到哪里了", "订单什么时候到", None),
    ],
)
def test_values_stand_beside_the_words_of_a_template(template: str, question: str, value: str | None) -> None:
    assert slots_in("Order {order}.", [template], question).values.get("order") == value


@pytest.mark.parametrize("template", ["{order}到哪里了", "{order} status", "where is order {order} now", "a {order} a"])
def test_no_question_takes_long(template: str) -> None:
    started = time.process_time()
    for piece in (":", "#", "a", " ", "a ", "where is order:", ": :"):
        slots_in("Order {order}.", [template], (piece * 4000)[:4000])
    assert time.process_time() - started < 1.0
