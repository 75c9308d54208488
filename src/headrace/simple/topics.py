"""Topic expressions: the Kafka topic of a table, as TiCDC's dispatch rules name it."""

from __future__ import annotations

import re
from typing import Final

from headrace.errors import ConfigInvalid

TOPIC_BYTES_MAX: Final = 249
"""The longest name that Kafka gives a topic."""

_LITERAL: Final = re.compile(r"[A-Za-z0-9._-]+")
_EXPRESSION: Final = re.compile(r"[A-Za-z0-9._-]*(?:\{schema\})?(?:[A-Za-z0-9._-]*\{table\})?[A-Za-z0-9._-]*")
_FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9._-]")
_RESERVED: Final = frozenset({".", ".."})


class TopicExpression:
    """A topic's name, or one that is made of ``{schema}`` and ``{table}``: each at most once, in this order."""

    def __init__(self, text: str) -> None:
        """Keep the expression; ConfigInvalid if it is none, or a name that Kafka gives no topic."""
        if not text or not _EXPRESSION.fullmatch(text):
            raise ConfigInvalid(
                f"the topic {text!r} must be letters, digits, '.', '_' and '-', with {{schema}} and then {{table}} "
                "at most once each",
                topic=text,
            )
        self.text = text
        self.literal = _LITERAL.fullmatch(text) is not None
        if self.literal and (text in _RESERVED or len(text) > TOPIC_BYTES_MAX):
            raise ConfigInvalid(
                f"the topic {text!r} can't be one: names have at most {TOPIC_BYTES_MAX} bytes, '.' and '..' are none",
                topic=text,
            )

    def topic_of(self, schema: str, table: str) -> str:
        """Return the topic of a table.

        Each character of a name that no topic may have becomes ``_``. What is too long is cut, so two tables may get the
        same.
        """
        if self.literal:
            return self.text
        topic = self.text.replace("{schema}", _FORBIDDEN.sub("_", schema))
        topic = topic.replace("{table}", _FORBIDDEN.sub("_", table))
        return "_" * len(topic) if topic in _RESERVED else topic[:TOPIC_BYTES_MAX]
