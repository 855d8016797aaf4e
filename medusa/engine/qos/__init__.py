"""Quality of service, measured: utility by delay and its inference through boxes (``delay_utility``), what
outputs are worth as they leave (``output_utility``), what boxes cost (``box_costs``), and how fast
counts grow (``rates``). It decides nothing.
"""
