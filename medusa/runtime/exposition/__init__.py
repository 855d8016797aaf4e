"""Figures over HTTP for Prometheus and ``medusa top``: how they get out, not which there are.

A figure of a node is a field in ``wire/status_and_metrics``: its name for Prometheus stands in its type.
Of a run: boxes count; ``engine/stats`` makes one row of each, ``engine/qos/rates`` the rates (``Fragment.at``
lets it note the counts every 250 ms; it reads no clock), ``engine/load_view`` what a drawing shows
(``query/render/diagram_load`` has the colours and the legend). ``server`` serves them, ``prometheus``
names them for Prometheus; ``runtime/embedded/metrics_service`` is the part of a run that users call. On a
node the engine's thread tells the brain what its boxes counted, ``nodes/status/fragment_status`` meters
that, and the HTTP thread asks the loop (``NodeLoop.ask``), so no lock is shared. ``cli/top`` is
``medusa top``.
"""
