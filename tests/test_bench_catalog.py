"""The bench of the catalog between participants: what it counts, its table and its plot, with few members."""

from __future__ import annotations

from bench import catalog


def test_a_small_measurement_has_a_row_for_each_rate_and_a_plot(tmp_path, monkeypatch):
    monkeypatch.setattr(catalog, "MEASURED_S", 2.0)
    monkeypatch.setattr(catalog, "LOOK_UPS_PER_S", 10)
    text = catalog.write(catalog.measure((10, 20)), tmp_path)
    assert (tmp_path / "catalog.svg").read_text().startswith("<?xml")
    rows = [line for line in text.splitlines() if line.startswith(("| 10 |", "| 20 |"))]
    assert len(rows) == 2 * (len(catalog.LIVES_S) + 1)
    assert "always, after all that" in rows[-1]
    assert all(" 0 | " in row for row in rows)
