"""Files of the Open Data Contract Standard (ODCS, of Bitol), 3.0 to 3.2.

    yaml_text  YAML as plain values, and the line of each
    fields     which fields it may have, place by place
    columns    columns of a stream as properties of a schema, and back
    document   the whole file, read and written

``q.source(contract=)`` reads columns from one; ``runtime/contracts`` has two parties sign one.
"""
