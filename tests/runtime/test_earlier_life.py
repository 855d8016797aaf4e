"""A node that lost its folder while its clock was set back counts its lives anew, and hears so."""

from __future__ import annotations

import pytest

from medusa.sim.actors import node as simulated
from medusa.sim.actors.federation import Federation


@pytest.mark.parametrize("name", ["a", "b"])
def test_a_node_that_is_ignored_as_an_earlier_life_hears_so_once(name, monkeypatch):
    """Whichever of the two calls the other."""
    federation = Federation(1, ["a", "b"])
    federation.start()
    federation.run(for_us=2_000_000)
    node = federation.nodes[name]
    node.crash()
    node.disk.lose()
    federation.run(for_us=2_000_000)
    recover = simulated.recover

    def in_its_first_life(*args, **options):
        found = recover(*args, **options)
        found.incarnation = 1
        return found

    monkeypatch.setattr(simulated, "recover", in_its_first_life)
    node.restart()
    federation.run(for_us=20_000_000)
    told = [each for each in node.reports if each.what == "ignored by a peer as an earlier life"]
    assert [each.level for each in told] == ["warning"]
    assert "it says life 1, and was in life" in told[0].fields["why"]
    assert f"set the clock of {name} right" in told[0].fields["hint"]
    [other] = {"a", "b"} - {name}
    said = [each.what for each in federation.nodes[other].reports]
    assert said.count("peer of an earlier life ignored") == 1
