"""A federation drawn: ``wire.status`` checks what nodes say, ``network`` puts it together, ``placing``
and ``picture`` draw it, ``server`` shows it as a page that lives.
"""
