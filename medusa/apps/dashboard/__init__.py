"""A federation drawn: ``wire.status_and_metrics`` checks what nodes say, ``network`` puts it together,
``placing`` and ``picture`` draw it, ``server`` shows it as a page that lives.

``watching`` asks nodes in threads and knows what each said last. Everything between that and the page is
a pure function: ``wire/status_and_metrics`` checks a status, ``network`` puts statuses together (streams and
links from what both ends say; of a dead node what the living say counts), ``placing`` and ``block`` say where
things stand, ``picture`` writes SVG, ``details`` what a click shows. ``hub`` has one place per browser
for the newest event, ``guard`` decides who is answered. The page (``page/``) takes nothing as HTML: it
parses the SVG as XML and turns the tree that is there into the new one, so that what has the focus keeps
it.
"""
