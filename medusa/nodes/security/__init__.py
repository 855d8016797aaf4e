"""Who a caller is (``registry``), who may connect (``sessions``), and cutting off who no longer may
(``guard``). Who may say which message is a column of ``nodes.message_table``. Keys are authenticated by the
transport.

``nodes/config/settings_security`` reads who is who, ``registry`` (``Registry``) answers it by key, for
each message; ``nodes.message_table.refusal`` says what stands against a message of that caller; ``guard`` is
the part of a brain that asks, passes statements on and cuts off who counts no more. ``wire/statement`` is
what participants sign; signing and verifying come through ``ports.Signer`` and ``ports.Verify``. What was
declared lies in the catalog, and counts once that is on disk. ``runtime/keys/key_files`` holds keys and
their files, ``runtime/transport/keyring`` those of a transport: it gives each message the key that CURVE
authenticated. ``runtime/transport/zap`` is a thread that says who may connect, by a set that the loop
replaces (``outbox.Trust``), and counts connections by address; ``runtime/transport/connection`` ends one
of them, which ZeroMQ can't. ``nodes/spec/spec_limits`` bounds a fragment by its spec alone;
``wire/column_cleaning`` zeroes what lies beside values before it leaves. Threats has the whole order, and
the tests.
"""
