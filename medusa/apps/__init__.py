"""Applications on the library: nothing below imports them."""
