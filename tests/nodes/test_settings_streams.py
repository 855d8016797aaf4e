"""What a configuration says of single streams, and how each slip is answered."""

from __future__ import annotations

import pytest

from medusa.errors import ConfigError
from medusa.nodes.config.settings import parse
from medusa.nodes.config.settings_streams import StreamSettings, stream_settings
from medusa.nodes.spec.stream_names import stream_for

BEGIN = 'name = "edge-1"\nlisten = "tcp://127.0.0.1:*"\ndata = "state"\n'


def read(text: str):
    return parse(f"{BEGIN}\n{text}\n")


def test_the_first_rule_that_fits_counts_alone():
    settings = read(
        """
[limits]
retention = "8 MiB"

[streams."netmon.alerts"]
weight = 1000
at_limit = "shed"

[streams."netmon.*"]
retention = "2 MiB"

[streams."*"]
weight = 2
"""
    )
    assert stream_settings(settings, "netmon.alerts") == StreamSettings(
        weight=1000, retention_bytes=8 << 20, at_limit="shed"
    )
    assert stream_settings(settings, "netmon.flows") == StreamSettings(retention_bytes=2 << 20)
    assert stream_settings(settings, "other.netmon.flows") == StreamSettings(
        weight=2, retention_bytes=8 << 20
    )


def test_what_goes_to_one_reader_alone_is_treated_as_its_output():
    settings = read('[streams."q.first"]\nat_limit = "shed"\n[streams."*"]\nweight = 2')
    assert stream_settings(settings, stream_for("q.first", "kind")).at_limit == "shed"
    assert stream_settings(settings, stream_for("q.other", "kind")).weight == 2
    assert stream_settings(settings, "q.first-2").weight == 2


def test_without_rules_streams_are_alike():
    settings = read("")
    expected = StreamSettings(weight=1, retention_bytes=settings.limits.retention_bytes, at_limit="slow")
    assert stream_settings(settings, "any.stream") == expected


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[streams."q.*"]\nwieght = 2', "line 6: streams.q.*.wieght: unknown field 'wieght' (did you mean"),
        ('[streams."q.*"]\n\nweight = 0', "line 7: streams.q.*.weight: 0 is no weight (allowed: 1 to 1000)"),
        ('[streams."q.*"]\nweight = 1001', "1001 is no weight"),
        ('[streams."q.*"]\nweight = 1.5', "1.5 is no weight"),
        ('[streams."q.*"]\nweight = true', "True is no weight"),
        ('[streams."q.*"]\nat_limit = "slwo"', "line 6: streams.q.*.at_limit: there is no 'slwo' (did you"),
        ('[streams."q.*"]\nat_limit = "spil"', "there is no 'spil' (did you mean 'spill'?"),
        ('[streams."q.*"]\nat_limit = ["slow"]', "there is no ['slow'] (allowed: \"slow\""),
        (
            '[streams."q.*"]\nretention = "3 parsecs"',
            "line 6: streams.q.*.retention: '3 parsecs' is no number of bytes",
        ),
        (
            '[streams."q.*"]\nretention = "1 KiB"',
            "line 6: streams.q.*.retention: '1 KiB' is out of range (allowed: 1 MiB to 64 GiB)",
        ),
        ('[streams]\n"q.*" = {weight = 0}', "line 6: streams.q.*.weight: 0 is no weight"),
        ('[streams]\n"q.*" = 3', "line 6: streams.q.*: expected a table of plain fields"),
        ("[streams.q.flows]\nweight = 2", "line 5: streams.q: expected a table of plain fields (write [str"),
        ('[streams.""]\nweight = 2', "'' is no pattern (write [streams.\"netmon.*\"], where * is any"),
        ('[streams."\\u0007"]\nweight = 2', "is no pattern"),
        ("streams = 3", "line 5: streams: expected a table, got 3"),
        ("\n".join(f'[streams."q{i}"]' for i in range(1001)), "1,001 patterns (at most 1,000)"),
    ],
)
def test_slips_are_named(text, says):
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert says in str(caught.value)
