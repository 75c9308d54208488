"""Headrace: every committed change of a database, in order and without loss, to any number of consumers.

The folders are the stages of the flow; imports run downward only::

    application tx -> outbox -> publisher agent -+                +-> HTTP: ranges, long poll -> listener
                                                 +-> log (journal)+
    any client: conditional append over HTTP ----+                +-> stored frames -> Spark pipeline -> tables

``cli`` > ``server | backup | pipeline`` > ``publisher | capture | listener`` > ``client`` > ``log`` >
``simple | wire`` > ``entries`` > ``runtime`` > ``errors``.
"""

__version__ = "0.1.0"
