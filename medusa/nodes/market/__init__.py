"""The market on a node: it sells load and streams, and buys them, under contracts in files.

``node_market`` drives ``medusa.market``: a ``Trader``, which decides what is to run where, and a
``PartyLedger``, which says what is owed. It does no IO: time and messages come in, messages and orders to
move fragments go out, and what has to outlive the process is in the catalog before either goes.

    node_market       the one door: messages, time, and what is read again
    traded_tasks      drives the trader: what is agreed, against where fragments are
    tasks_port        what it asks of whoever moves fragments between participants
    lent_fragments    the same by ``nodes.abroad``: what moves them
    paid_tasks        from and up to which row a task is paid for, and who has said so: the ledger's driver
    task_rows         the same, told to the partner until it has heard it
    planned_moves     what goes and comes at a client's signal, as a contract plans it
    content_terms     what is agreed about rows of a stream, and how the ledger bills it
    sold_streams      who reads what by such a contract: rows, and whether they came in time
    suggested_streams readers that go on at another participant, as their seller suggests
    measured_tasks    fragments as tasks: rows, and what a row takes
    signed_papers     contracts and revocations as files hold them; which of them count here
    signed_documents  receipts and settlements among the records of the ledger, for files
    task_policy       what may move at all: the owner's lists, and what stands in the way
    market_words      payloads of ``Traded`` and ``Booked``, with their bounds
    market_status     what status and ``medusa explain market`` show

What is kept is a struct of ``nodes/catalog/kept_market``, the configuration is read in
``nodes/config/settings_market``. docs/market.md says how two owners set it up.
"""
