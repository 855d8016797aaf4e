"""Who a caller is (``registry``), who may say which message (``message_rights``, a table), who may connect
(``sessions``), and cutting off who no longer may (``guard``). Keys are authenticated by the transport.
"""
