"""Where messages go and how: the sink URI and the changefeed file, in TiCDC's words. Pure.

``kafka://HOST:PORT[,HOST:PORT…]/TOPIC?word=value&…``. A word of the URI wins over the same one of the file, as in TiCDC.
Words that ask for what is not done here are refused, unless their value says that they are off.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, cast
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from headrace.capture.changefeed import Changefeed, changefeed_of
from headrace.errors import ConfigInvalid
from headrace.runtime.settings import Settings
from headrace.simple.topics import TopicExpression
from headrace.simple.values import Encoding

MESSAGE_BYTES_MAX: Final = 10 << 20
"""TiCDC's default of ``max-message-bytes``."""
PARTITIONS_NEW: Final = 3
"""Partitions of a topic that is made, where ``partition-num`` does not say."""

_SCHEMES: Final = {"kafka": False, "kafka+ssl": True}
"""A URI's scheme, and whether it means TLS."""
_Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 31) - 1)]


class Delivery(Settings, frozen=True):
    """How Kafka is reached and what it is given: the words of ``[sink.kafka-config]`` and of the URI.

    ``ca``, ``cert`` and ``key`` are PEM files, read on the driver alone. A text form is never printed: it has a password.
    """

    partition_num: _Positive | None = None
    replication_factor: Annotated[int, msgspec.Meta(ge=1, le=(1 << 15) - 1)] = 1
    max_message_bytes: _Positive = MESSAGE_BYTES_MAX
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    kafka_client_id: str = "headrace"
    auto_create_topic: bool = True
    required_acks: int = -1
    enable_tls: bool = False
    ca: str = ""
    cert: str = ""
    key: str = ""
    sasl_user: str = ""
    sasl_password: str = ""
    sasl_mechanism: Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = ""

    def __repr__(self) -> str:
        return f"Delivery of {self.kafka_client_id}"


class KafkaSink(NamedTuple):
    """What a job of this kind is told: brokers (``HOST:PORT,…``), the default topic, how, and what of the feed."""

    brokers: str
    topic: str
    delivery: Delivery
    changefeed: Changefeed


class _Unused(NamedTuple):
    """A word that means nothing here: why, and the values that ask for nothing."""

    why: str
    off: tuple[str, ...] = ()


_GSSAPI: Final = _Unused("Kerberos is not spoken", ("", "false"))
_OAUTH: Final = _Unused("OAuth is not spoken", ("",))
_TIMEOUT: Final = _Unused("Kafka's client has its own times: it sends again for two minutes")
_LARGE: Final = _Unused("large messages are not handled apart", ("none", "", "false"))
UNUSED: Final[Mapping[str, _Unused]] = {
    "kafka-version": _Unused("the client asks the broker for its version"),
    **dict.fromkeys(("dial-timeout", "write-timeout", "read-timeout"), _TIMEOUT),
    "insecure-skip-verify": _Unused("certificates are always checked; name the authority by ca", ("false",)),
    **dict.fromkeys(
        (
            *("sasl-gssapi-auth-type", "sasl-gssapi-keytab-path", "sasl-gssapi-kerberos-config-path"),
            *("sasl-gssapi-service-name", "sasl-gssapi-user", "sasl-gssapi-password", "sasl-gssapi-realm"),
            "sasl-gssapi-disable-pafxfast",
        ),
        _GSSAPI,
    ),
    **dict.fromkeys(
        (
            *("sasl-oauth-client-id", "sasl-oauth-client-secret", "sasl-oauth-token-url"),
            *("sasl-oauth-scopes", "sasl-oauth-grant-type", "sasl-oauth-audience"),
        ),
        _OAUTH,
    ),
}
"""TiCDC's words of how Kafka is reached that are not taken."""
_ONLY_IN_URI: Final[Mapping[str, _Unused]] = {
    "enable-tidb-extension": _Unused("the Simple Protocol has no extension fields", ("false",)),
    "max-batch-size": _Unused("a message of the Simple Protocol holds one event", ("1",)),
    "large-message-handle-option": _LARGE,
    "claim-check-storage-uri": _LARGE,
    "large-message-handle-compression": _Unused("messages are not compressed one by one", ("none", "")),
    "simple-include-start-ts": _Unused("a binlog tells no start of a transaction", ("false",)),
}


def parse_sink(uri: str, changefeed: str = "") -> KafkaSink:
    """Return what ``uri`` and the text of a changefeed file say together.

    ConfigInvalid names the word that is unknown, refused or wrong, and where it stands; never a password.
    """
    brokers, topic, words, is_tls = _of_uri(uri)
    document = _document(changefeed)
    given = _of_file(document)
    found = changefeed_of(document)
    protocol = words.pop("protocol", "simple")
    if protocol != "simple":
        raise ConfigInvalid(
            f"sink URI: protocol: {protocol!r} is not written here", hint="Write protocol=simple."
        )
    encoding = words.pop("encoding-format", found.encoding)
    if encoding not in set(Encoding):
        raise ConfigInvalid(f"sink URI: encoding-format: {encoding!r} must be json or avro")
    found = msgspec.structs.replace(found, encoding=Encoding(encoding))
    refuse_unused(words, {**UNUSED, **_ONLY_IN_URI}, "sink URI")
    delivery = _converted({**given, **({"enable-tls": True} if is_tls else {}), **words})
    _check(delivery)
    return KafkaSink(brokers, topic, delivery, found)


def delivery_words() -> list[str]:
    """Return the words of how Kafka is reached that mean something here."""
    return [str(field.encode_name) for field in msgspec.structs.fields(Delivery)]


def refuse_unused(words: dict[str, str], unused: Mapping[str, _Unused], where: str) -> None:
    """Take the words that are off out of ``words``; ConfigInvalid for one that asks for what is not done here."""
    for name in [name for name in words if name in unused]:
        why, off = unused[name]
        if words.pop(name) not in off:
            raise ConfigInvalid(
                f"{where}: {name}: TiCDC's word, which means nothing here: {why}", hint=f"Take {name} out."
            )


def _of_uri(uri: str) -> tuple[str, str, dict[str, str], bool]:
    try:
        parts = urlsplit(uri)
        words = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise ConfigInvalid(f"sink URI: {error}", hint=_FORM) from None
    if parts.scheme not in _SCHEMES or not parts.netloc or "@" in parts.netloc or parts.fragment:
        raise ConfigInvalid(
            f"sink URI: it must be {_FORM}", hint="Users and passwords are sasl-user, sasl-password."
        )
    topic = unquote(parts.path.removeprefix("/"))
    if not topic or not TopicExpression(topic).literal:
        raise ConfigInvalid(f"sink URI: {topic!r} is no name of a topic: it must be {_FORM}", hint=_FORM)
    names = [name for name, _ in words]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigInvalid(f"sink URI: {twice} stands there twice")
    brokers = [one if ":" in one else f"{one}:9092" for one in parts.netloc.split(",") if one]
    return ",".join(brokers), topic, dict(words), _SCHEMES[parts.scheme]


_FORM: Final = "kafka://HOST:PORT/TOPIC?word=value&word=value"


def _document(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigInvalid(f"not TOML: {error}") from None


def _of_file(document: dict[str, Any]) -> dict[str, Any]:
    """Take the words of how Kafka is reached out of a parsed file, and return them."""
    sink = document.get("sink")
    config = sink.get("kafka-config") if isinstance(sink, dict) else None
    if not isinstance(config, dict):
        return {}
    mine = {name: config.pop(name) for name in (*delivery_words(), *UNUSED) if name in config}
    unused = {name: _plain(mine.pop(name)) for name in list(mine) if name in UNUSED}
    refuse_unused(unused, UNUSED, "sink.kafka-config")
    return mine


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _converted(words: Mapping[str, Any]) -> Delivery:
    given = dict(words)
    if "sasl-mechanism" in given:
        given["sasl-mechanism"] = str(given["sasl-mechanism"]).upper()
    try:
        return msgspec.convert(given, Delivery, strict=False)
    except msgspec.ValidationError as error:
        # A password is text, and any text is taken: no error shows one.
        raise ConfigInvalid(
            f"how Kafka is reached: {error}", hint=f"The words are: {', '.join(sorted(delivery_words()))}."
        ) from None


def _check(delivery: Delivery) -> None:
    if delivery.required_acks != -1:
        raise ConfigInvalid(
            f"required-acks: {delivery.required_acks}: what one broker has alone can be lost, and WATERMARKs would lie",
            hint="Leave it out: a message counts once all replicas in sync have it.",
        )
    if bool(delivery.cert) != bool(delivery.key):
        raise ConfigInvalid("cert and key belong together: one of them is missing")
    if (delivery.ca or delivery.cert) and not delivery.enable_tls:
        raise ConfigInvalid(
            "ca, cert and key count for nothing without enable-tls", hint="Write enable-tls=true."
        )
    named = [
        cast("str", getattr(delivery, name)) for name in ("sasl_user", "sasl_password", "sasl_mechanism")
    ]
    if any(named) and not all(named):
        raise ConfigInvalid(
            "sasl-mechanism, sasl-user and sasl-password belong together: one of them is missing"
        )
