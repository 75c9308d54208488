"""The backup agent: the stream over all feeds -> KWAL segments and their manifests in an archive (RFC-010 §5).

::

    WalSubscription -> Gatherer -> Deposits -> segment, manifest -> Ack
                       (one open)   (one in flight)

:mod:`~headrace.backup.agent` is the process around it. :mod:`~headrace.backup.opening` takes the folder over and says where
the stream begins, :mod:`~headrace.backup.histories` (pure) whether what comes follows what is archived.
"""
