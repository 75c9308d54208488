"""The restore drill: a random moment of an archive restored into a scratch folder, and compared with a fold of another kind.

``fold`` and ``statements`` say in plain Python what entries come to, ``walking`` where the log may be cut. They share with
:mod:`headrace.pipeline.restore` what reads bytes, which windows there are, and which histories make up a feed. ``job`` runs
both, and tells how long a recovery takes and how much would be lost.
"""
