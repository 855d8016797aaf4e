"""Who a caller is (``registry``), who may connect (``sessions``), and cutting off who no longer may
(``guard``). Who may say which message is a column of ``nodes.messages``. Keys are authenticated by the
transport.
"""
