"""Dispatch rules: which topic and which partition a message goes to. The first rule that matches a table wins.

DDL and WATERMARK messages go to every partition: a DDL to those of its table's topic, a WATERMARK to those of all topics.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from headrace.errors import ConfigInvalid
from headrace.simple.message import Ddl, Dml
from headrace.simple.partition import NullHashing, PartitionRule, Placer, placer_of
from headrace.simple.schema import TableSchema
from headrace.simple.table_filter import TableFilter
from headrace.simple.topics import TopicExpression

_ALIASES: Final = {"rowid": PartitionRule.INDEX_VALUE}


class DispatchRule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One rule as a configuration writes it: patterns of a table filter, and what becomes of the tables that they accept.

    ``partition`` is the name of a PartitionRule; ``rowid`` is an old one of ``index-value``, an unknown one counts as
    ``default``. ``index`` belongs to ``index-value``, ``columns`` to ``columns``. ``topic`` is a topic expression; empty:
    the default topic.
    """

    matcher: tuple[str, ...]
    partition: str = PartitionRule.DEFAULT
    index: str = ""
    columns: tuple[str, ...] = ()
    topic: str = ""


class Route(msgspec.Struct, frozen=True):
    """Where the rows of one table schema go."""

    topic: str
    placer: Placer

    def partition_of(self, message: Dml, partitions: int) -> int:
        """Return the partition of a row, 0 … ``partitions`` - 1; errors as :class:`Placer`."""
        if partitions < 1:
            raise ConfigInvalid(f"the topic {self.topic} must have a partition, not {partitions}")
        return self.placer.partition_of(message, partitions)


class _Compiled(msgspec.Struct, frozen=True):
    tables: TableFilter
    rule: PartitionRule
    settings: DispatchRule
    topic: TopicExpression


class Dispatcher:
    """A list of rules, ready to use. Behind the last stands one for all tables: ``default``, default topic."""

    def __init__(
        self,
        rules: Sequence[DispatchRule],
        default_topic: str,
        *,
        case_sensitive: bool = False,
        nulls: NullHashing = NullHashing.TEXT,
    ) -> None:
        """Check and keep the rules; ConfigInvalid names what is wrong. ``warnings`` then has what counts for nothing."""
        self.default_topic = default_topic
        self.warnings: list[str] = []
        self._nulls = nulls
        self._rules = [
            self._compiled(place, rule, case_sensitive=case_sensitive)
            for place, rule in enumerate((*rules, DispatchRule(("*.*",))), 1)
        ]

    def _compiled(self, place: int, settings: DispatchRule, *, case_sensitive: bool) -> _Compiled:
        name = settings.partition.lower()
        try:
            rule = _ALIASES.get(name) or PartitionRule(name)
        except ValueError:
            rule = PartitionRule.DEFAULT
            self.warnings.append(
                f"dispatch rule {place}: the partition {name!r} is not known: default is used"
            )
        if rule is PartitionRule.COLUMNS and not settings.columns:
            raise ConfigInvalid(f"dispatch rule {place}: the partition 'columns' needs a list of columns")
        if settings.columns and rule is not PartitionRule.COLUMNS:
            self.warnings.append(f"dispatch rule {place}: columns count for nothing with {rule.value!r}")
        if settings.index and rule is not PartitionRule.INDEX_VALUE:
            self.warnings.append(f"dispatch rule {place}: index counts for nothing with {rule.value!r}")
        tables = TableFilter(settings.matcher, case_sensitive=case_sensitive)
        return _Compiled(tables, rule, settings, TopicExpression(settings.topic or self.default_topic))

    def topic_of(self, schema: str, table: str) -> str:
        """Return the topic of a table."""
        return self._rule_of(schema, table).topic.topic_of(schema, table)

    def route_of(self, schema: TableSchema) -> Route:
        """Return where the rows of ``schema`` go. Make it once for each schema: it is the plan, rows are quick then.

        ConfigInvalid if the rule names an index or a column that the table does not have.
        """
        found = self._rule_of(schema.schema, schema.table)
        placer = placer_of(
            schema,
            found.rule,
            index=found.settings.index,
            columns=found.settings.columns,
            nulls=self._nulls,
        )
        return Route(found.topic.topic_of(schema.schema, schema.table), placer)

    def topic_of_ddl(self, message: Ddl) -> str:
        """Return the topic to all of whose partitions a DDL goes: its table's, by the name before; else the default."""
        schema = message.pre_table_schema or message.table_schema
        if schema is None or not schema.table:
            return self.default_topic
        return self.topic_of(schema.schema, schema.table)

    def topics(self, tables: Iterable[tuple[str, str]]) -> list[str]:
        """Return the topics of ``tables`` (schema, table) and the default: a WATERMARK goes to all of their partitions."""
        found = dict.fromkeys(self.topic_of(schema, table) for schema, table in tables)
        return [*found, *([] if self.default_topic in found else [self.default_topic])]

    def _rule_of(self, schema: str, table: str) -> _Compiled:
        return next(rule for rule in self._rules if rule.tables.accepts(schema, table))
