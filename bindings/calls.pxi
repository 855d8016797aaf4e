# Types and aggregates by their names: native/aggregates/kinds.h and accumulate.h.

cdef extern from "aggregates/accumulate.h" nogil:
    ctypedef int md_type
    ctypedef int md_function
    enum:
        MD_N_FUNCTIONS
    const char *const md_aggregate_names[]

    ctypedef struct md_aggregate:
        md_function function
        int32_t input
        double parameter


cdef dict _FUNCTIONS = {(<bytes>md_aggregate_names[i]).decode(): i for i in range(MD_N_FUNCTIONS)}
AGGREGATES = tuple(_FUNCTIONS)


cdef int _types(names, md_type *out) except -1:
    for i, name in enumerate(names):
        if name not in ("l", "L", "g", "u", "z", "b"):
            raise ValueError(f"{name!r} is not a native type: one of l L g u z b")
        out[i] = ord(name)
    return 0


cdef int _calls(aggregates, md_aggregate *out) except -1:
    """(function, argument) or (function, argument, parameter) each."""
    for i, call in enumerate(aggregates):
        function, argument = call[0], call[1]
        if function not in _FUNCTIONS:
            raise ValueError(f"aggregate {function!r}: one of {', '.join(_FUNCTIONS)}")
        out[i].function = <md_function>_FUNCTIONS[function]
        out[i].input = argument
        out[i].parameter = call[2] if len(call) > 2 else 0.0
    return 0
