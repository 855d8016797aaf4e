"""Quality of service, measured: utility by delay and its inference through boxes (``delay_utility``), what
outputs are worth as they leave (``output_utility``), and what boxes cost (``box_costs``). It decides
nothing.
"""
