"""Capacity, as a configuration says it."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.market.work import ResourceUse, price_of_work, resource_use_of


@pytest.mark.parametrize(
    ("text", "cores", "bytes_per_s"),
    [
        ("0.5 cores", 0.5, 0),
        ("1 core", 1, 0),
        (" 2cores ", 2, 0),
        ("10 MB/s", 0, 10**7),
        ("2 cores, 1 GiB/s", 2, 2**30),
        ("1.5 kB/s,0.25 cores", 0.25, 1_500),
        ("7 B/s", 0, 7),
    ],
)
def test_text_becomes_what_a_machine_has(text, cores, bytes_per_s):
    assert resource_use_of(text) == ResourceUse(cpu_cores=cores, bytes_per_s=bytes_per_s)


@pytest.mark.parametrize(
    "text",
    ["", "half a core", "1", "1 MB", "-1 cores", "1 cores, 2 cores", "0 cores", "1 core, 0 B/s", "1e3 cores",
     "1 XB/s", "nan cores", ",", "1 core," + " " * 200, 3],
)  # fmt: skip
def test_anything_else_is_refused_and_names_the_field(text):
    with pytest.raises(ConfigError) as caught:
        resource_use_of(text, what="[node] capacity")
    assert caught.value.message.startswith("[node] capacity")
    assert caught.value.code in ("config.capacity", "query.size")


def test_the_rest_of_each_bill_is_in_the_next_one():
    amounts, rest = 0, 0
    for _ in range(1_000):
        amount, rest = price_of_work(333_333_333, 1, rest)
        amounts += amount
    assert (amounts, rest) == divmod(1_000 * 333_333_333, 10**9)
