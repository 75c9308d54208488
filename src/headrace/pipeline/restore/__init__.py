"""Point-in-time restore: a base snapshot and the segments behind it, folded into tables or into keys and values.

In: a plan (:mod:`headrace.archive.moments.planning`) and the archive it is of. Out: a folder that is whole or not there.
``job`` is the way of it; ``scanning`` reads segments on Spark's workers.
"""
