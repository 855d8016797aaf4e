"""What a data folder holds, and what may go: read and checked before anything is written or deleted.

``startup`` is a node's start, ``operator_repair`` is ``medusa repair``.
"""
