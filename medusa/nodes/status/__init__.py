"""What a node says of itself: numbers by fragment and stream, peers that don't answer, and why nothing
comes out. ``wire/status_and_metrics`` has the fields.
"""
