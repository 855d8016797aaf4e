"""SQL text to boxes: the same boxes as the builder makes."""
