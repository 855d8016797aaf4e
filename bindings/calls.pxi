# Types and aggregates by their names: native/aggregates/accumulate.h.

cdef extern from "aggregates/accumulate.h" nogil:
    ctypedef int md_type
    ctypedef enum md_function:
        MD_COUNT
        MD_SUM
        MD_MIN
        MD_MAX
        MD_AVG
        MD_VARIANCE
        MD_COUNT_DISTINCT
        MD_STDDEV, MD_FIRST, MD_LAST, MD_APPROX_DISTINCT, MD_QUANTILE, MD_APPROX_QUANTILE

    ctypedef struct md_aggregate:
        md_function function
        int32_t input
        double parameter


cdef dict _FUNCTIONS = {
    "count": MD_COUNT, "sum": MD_SUM, "min": MD_MIN, "max": MD_MAX, "avg": MD_AVG,
    "variance": MD_VARIANCE, "count_distinct": MD_COUNT_DISTINCT, "stddev": MD_STDDEV,
    "first": MD_FIRST, "last": MD_LAST, "approx_count_distinct": MD_APPROX_DISTINCT,
    "quantile": MD_QUANTILE, "approx_quantile": MD_APPROX_QUANTILE,
}


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
        out[i].function = <md_function><int>_FUNCTIONS[function]
        out[i].input = argument
        out[i].parameter = call[2] if len(call) > 2 else 0.0
    return 0
