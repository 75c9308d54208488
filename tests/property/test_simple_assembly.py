"""Whatever is cut, sent again and interleaved: a consumer's tables become those of the source, in bounded memory."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.simple.assembler import Bounds
from tests.scale import scaled, sized
from tests.simple_topic import Consumer, Source, Writer


def history(rng: random.Random, steps: int) -> Source:
    source = Source(rng)
    for _ in range(steps):
        source.step()
    return source


@settings(max_examples=sized(scaled(45), soak=scaled(150)), deadline=None)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 40), partitions=st.integers(1, 4))
def test_tables_and_statements_are_the_sources(seed: int, steps: int, partitions: int) -> None:
    rng = random.Random(seed)  # repeatable
    source = history(rng, steps)
    consumer = Consumer(rng, source, Writer(rng, source, partitions).write())
    consumer.run()
    assert consumer.tables == source.tables
    assert consumer.statements == source.statements
    assert consumer.machine.rows == 0
    assert consumer.stored[2] == source.tables, "and all of it is stored"


@settings(max_examples=sized(scaled(20), soak=scaled(40)), deadline=None)
@given(seed=st.integers(0, 2**32), partitions=st.integers(1, 4), greedy=st.booleans())
def test_what_waits_is_bounded(seed: int, partitions: int, *, greedy: bool) -> None:
    rng = random.Random(seed)  # repeatable
    source = history(rng, 200)
    logs = Writer(rng, source, partitions).write()
    bounds = Bounds(rows_max=200)
    consumer = Consumer(rng, source, logs, bounds, greedy=greedy)
    consumer.run()
    assert consumer.tables == source.tables
    assert consumer.rows_seen <= 200
