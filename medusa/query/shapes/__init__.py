"""What comes out of a box, given what goes in: schema, time, windows. One file for each group of boxes.

Every check of a box is here; ``dispatch`` chooses among them. Nothing runs.
"""
