"""Kafka's clients: their configuration, and what they are asked before anything is read or written."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import logging
import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeVar

from heronpy.connectors._optional import need
from heronpy.errors import ConfigError, NotFoundError, UnavailableError

_log = logging.getLogger(__name__)
T = TypeVar("T")
EARLIEST: Final = "earliest"
LATEST: Final = "latest"
_OURS = (
    "auto.offset.reset",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.partition.eof",
    "group.id",
    "transactional.id",
)
_QUIET = {"log_level": 2}
"""What librdkafka would print while it connects, again and again, comes as an error, too, and is logged once."""
_RETRY_S = 0.1
_POLL_S = 0.05
_LISTEN_EVERY_S = 2.0
_GRACE_S = 5.0
"""Clients time out by themselves."""


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """Where a topic is, and how it is reached. Picklable; no secret is in it."""

    servers: str
    topic: str
    options: Mapping[str, Any]
    secrets: Mapping[str, str]
    timeout_s: float
    """For an answer, where a task begins."""
    who: str
    """For messages."""

    def __post_init__(self) -> None:
        if not self.servers or not self.topic:
            raise ConfigError(f"{self.who} takes servers (host:port,…) and the name of a topic")
        if taken := sorted({*self.options, *self.secrets} & {*_OURS}):
            raise ConfigError(f"{self.who} sets {', '.join(taken)} itself")

    def config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        """The configuration of a client.

        Raises:
            ConfigError: confluent-kafka is not installed, or the environment variable of a secret is not set.
        """
        need("confluent_kafka", "kafka", self.who)
        config = {**_QUIET, **self.options, "bootstrap.servers": self.servers}
        for option, variable in self.secrets.items():
            if not (value := os.environ.get(variable)):
                raise ConfigError(f"the environment variable {variable} must have {option} of {self.who}")
            config[option] = value
        return {**config, **more}

    def admin(self) -> Admin:
        """A client that asks questions."""
        return Admin(self)


class Partition(NamedTuple):
    """What is known of a partition when a task begins with it."""

    number: int
    topic_id: str
    """Distinguishes the topic from a later one of the same name."""
    start: int
    """Offset at which its group begins."""
    end: int | None
    """Offset at which a bounded source ends; None: it does not end."""


class Admin:
    """Questions about a topic, each answered in time."""

    def __init__(self, cluster: Cluster) -> None:
        from confluent_kafka import KafkaError
        from confluent_kafka.admin import AdminClient

        self._cluster = cluster
        self._passing = (
            KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
            KafkaError.COORDINATOR_NOT_AVAILABLE,
            KafkaError.NOT_COORDINATOR,
            KafkaError.LEADER_NOT_AVAILABLE,
            KafkaError.NOT_LEADER_FOR_PARTITION,
            KafkaError._NOENT,  # no leader
            KafkaError.FENCED_LEADER_EPOCH,  # what the client knows of the leader is old
            KafkaError.UNKNOWN_LEADER_EPOCH,  # or newer than what the leader knows of itself
            KafkaError.OFFSET_NOT_AVAILABLE,  # the new leader does not know yet how far its followers are
            KafkaError.REPLICA_NOT_AVAILABLE,
            KafkaError.KAFKA_STORAGE_ERROR,  # another replica will lead
            KafkaError.UNSTABLE_OFFSET_COMMIT,  # a transaction that commits the offset is open
            KafkaError.NETWORK_EXCEPTION,
            KafkaError.REQUEST_TIMED_OUT,  # between brokers; the client's own is another one
            KafkaError.THROTTLING_QUOTA_EXCEEDED,
        )
        """What the protocol has as worth another try, as far as answers to these questions have it."""
        self._errors = Errors(cluster.who)
        with opened(cluster.who):
            self.client = AdminClient(cluster.config({"error_cb": self._errors.on_error}))

    def about(self, topic: str) -> Admin:
        """The same client, asked about another topic."""
        other = copy.copy(self)
        other._cluster = dataclasses.replace(self._cluster, topic=topic)
        return other

    def describe(self) -> tuple[str, list[int]]:
        """The topic's id, and the numbers of its partitions.

        Raises:
            NotFoundError: there is no such topic.
            ConfigError: access is denied.
            UnavailableError: Kafka does not answer.
        """
        from confluent_kafka import TopicCollection

        topic = self._cluster.topic
        asked = TopicCollection([topic])
        found = self._answer(lambda: self.client.describe_topics(asked, request_timeout=self._cluster.timeout_s)[topic])
        return str(found.topic_id), sorted(each.id for each in found.partitions)

    def offsets(self, partitions: Iterable[int], at: str | int, *, committed_only: bool = False) -> dict[int, int]:
        """Offsets by partition. The topic is there, or was just made.

        Args:
            partitions: Their numbers.
            at: EARLIEST, LATEST, or a time in ms: that of the first record from then on, or the latest.
            committed_only: The latest of committed transactions.
        """
        from confluent_kafka import IsolationLevel, KafkaError, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        spec = {EARLIEST: OffsetSpec.earliest, LATEST: OffsetSpec.latest}
        wanted = spec[at]() if isinstance(at, str) else OffsetSpec.for_timestamp(at)
        level = IsolationLevel.READ_COMMITTED if committed_only else IsolationLevel.READ_UNCOMMITTED
        places = {TopicPartition(self._cluster.topic, number): wanted for number in partitions}

        def ask() -> list[Future[Any]]:
            asked = self.client.list_offsets(places, isolation_level=level, request_timeout=self._cluster.timeout_s)
            return [asked[place] for place in places]

        answers = self._answers(ask, KafkaError.UNKNOWN_TOPIC_OR_PART)
        found = {place.partition: answer.offset for place, answer in zip(places, answers, strict=True)}
        if none_later := [number for number, offset in found.items() if offset < 0]:
            found |= self.offsets(none_later, LATEST)
        return found

    # An AdminClient can ask for a group's offsets, too. But librdkafka (2.16.0) crashes when the answer is that the
    # group's coordinator is only taking office: it looks for the consumer that it takes the client for.

    def group_offsets(self, group: str, partitions: Iterable[int]) -> dict[int, int]:
        """What a group has committed, of the partitions of which it has something."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(self._cluster.topic, number) for number in partitions]
        with self._consumer(group) as consumer:
            found = self._retried(lambda: answered(self._committed(consumer, places)))
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def commit_group(self, group: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group, all or none."""
        from confluent_kafka import TopicPartition

        places = [TopicPartition(self._cluster.topic, number, offset) for number, offset in offsets.items()]
        with self._consumer(group) as consumer:
            self._retried(lambda: answered(consumer.commit(offsets=places, asynchronous=False)))

    def _committed(self, consumer: Any, places: list[Any]) -> Any:
        """What is committed. A denied group is reported only while polling: the call itself would just time out."""
        from confluent_kafka import KafkaError, KafkaException

        deadline_s = time.monotonic() + self._cluster.timeout_s
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                return consumer.committed(places, timeout=max(0.0, min(left_s, _LISTEN_EVERY_S)))
            except KafkaException as e:
                if (message := consumer.poll(0)) is not None and message.error() is not None:
                    raise KafkaException(message.error()) from None
                if e.args[0].code() != KafkaError._TIMED_OUT or left_s <= _LISTEN_EVERY_S:
                    raise

    @contextlib.contextmanager
    def _consumer(self, group: str) -> Iterator[Any]:
        from confluent_kafka import Consumer

        ours = {"group.id": group, "enable.auto.commit": False, "error_cb": self._errors.on_error}
        with opened(self._cluster.who):
            consumer = Consumer(self._cluster.config(ours))
        try:
            yield consumer
        finally:
            consumer.close()

    def _answer(self, ask: Callable[[], Future[Any]]) -> Any:
        return self._answers(lambda: [ask()])[0]

    def _answers(self, ask: Callable[[], list[Future[Any]]], *passing: int) -> list[Any]:
        deadline_s = time.monotonic() + self._cluster.timeout_s
        return self._retried(lambda: [self._awaited(future, deadline_s) for future in ask()], *passing)

    def _retried(self, ask: Callable[[], T], *passing: int) -> T:
        """What is answered; asked again while a broker is only taking office. Raises one line of why there is none."""
        from confluent_kafka import KafkaException

        deadline_s = time.monotonic() + self._cluster.timeout_s
        while True:
            try:
                return ask()
            except KafkaException as e:
                if e.args[0].code() not in (*self._passing, *passing) or time.monotonic() > deadline_s:
                    raise self._cluster_error(e.args[0]) from None
            time.sleep(_RETRY_S)
            # librdkafka may keep what it read of a topic that had just been made and had no leader, for minutes.
            with contextlib.suppress(KafkaException):
                self.client.list_topics(self._cluster.topic, timeout=self._cluster.timeout_s)

    def _awaited(self, future: Future[Any], deadline_s: float) -> Any:
        """Its result. Connection errors are reported only while polling."""
        while True:
            try:
                return future.result(_POLL_S)
            except TimeoutError:
                self.client.poll(0)
            if self._errors.denied:
                raise ConfigError(f"{self._cluster.who}: access denied: {self._errors.last}")
            if time.monotonic() > deadline_s + _GRACE_S:
                raise UnavailableError(f"{self._cluster.who}: {self._cluster.servers} does not answer")

    def _cluster_error(self, error: Any) -> Exception:
        from confluent_kafka import KafkaError

        if error.code() in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            why = self._errors.last or said(error)
            return UnavailableError(f"{self._cluster.who}: {self._cluster.servers} does not answer: {why}")
        return refused(error, self._cluster)


def locate(
    admin: Admin, group: str, start: str | int, bounded: bool, known: Collection[int] = ()
) -> dict[int, Partition]:
    """The partitions of a topic, and where a group begins in each.

    That is what the group has committed. A group that has committed nothing begins at `start`, and that is committed at
    once for all partitions. So one without a committed offset, where others have some, is a partition that was added
    later: it is read from its beginning. Nothing more is asked if all are `known`.

    Raises:
        HeronError: as `Admin.describe`.
    """
    topic_id, numbers = admin.describe()
    if known and set(numbers) <= set(known):
        return {}
    committed = admin.group_offsets(group, numbers)
    if missing := [number for number in numbers if number not in committed]:
        begin = admin.offsets(missing, EARLIEST if committed else start)
        if not committed and start != EARLIEST:
            admin.commit_group(group, begin)
        committed |= begin
    ends = admin.offsets(numbers, LATEST, committed_only=True) if bounded else {}
    return {number: Partition(number, topic_id, committed[number], ends.get(number)) for number in numbers}


class Errors:
    """What a client says of its connections: logged when it begins and when it is over."""

    def __init__(self, who: str) -> None:
        self._who = who
        self.last = ""
        """What is wrong now; empty: nothing."""
        self.denied = False
        """Whether the credentials are wrong."""

    def on_error(self, error: Any) -> None:
        """As the `error_cb` of a client."""
        from confluent_kafka import KafkaError

        denied = error.code() in (KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED)
        self.denied |= denied
        if self.last and error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            return  # the first says why
        text = said(error)
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            text += ", or close connections at once: is this their port, and security.protocol what they expect there?"
        if not self.last:
            what = "denies access" if denied else "does not answer"
            _log.warning("%s: Kafka %s, trying again: %s", self._who, what, text)
        self.last = text

    def well(self) -> None:
        """Kafka has answered."""
        if self.last:
            _log.info("%s: Kafka answers again", self._who)
            self.last = ""


def refused(error: Any, cluster: Cluster) -> Exception:
    """An error of Kafka as the project's."""
    from confluent_kafka import KafkaError

    match error.code():
        case KafkaError.UNKNOWN_TOPIC_OR_PART | KafkaError._UNKNOWN_TOPIC | KafkaError._UNKNOWN_PARTITION:
            return NotFoundError(f"{cluster.who}: {cluster.servers} has no topic {cluster.topic!r}")
        case (
            KafkaError.TOPIC_AUTHORIZATION_FAILED
            | KafkaError.GROUP_AUTHORIZATION_FAILED
            | KafkaError.CLUSTER_AUTHORIZATION_FAILED
            | KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            | KafkaError.SASL_AUTHENTICATION_FAILED
        ):
            return ConfigError(f"{cluster.who}: access denied: {said(error)}")
        case KafkaError.INVALID_TRANSACTION_TIMEOUT:
            return ConfigError(f"{cluster.who}: the option transaction.timeout.ms: {said(error)}")
    return UnavailableError(f"{cluster.who}: {said(error)}")


def answered(places: list[Any]) -> list[Any]:
    """Places of which a question was answered. An error of one of them is none of the answer: it is raised here."""
    from confluent_kafka import KafkaException

    for place in places:
        if place.error is not None:
            raise KafkaException(place.error)
    return places


def said(error: Any) -> str:
    """The text of an error, on one line."""
    return " ".join(str(error.str()).split()) or str(error.name())


@contextlib.contextmanager
def opened(who: str) -> Iterator[None]:
    """Makes a client: what is wrong with its options is a ConfigError."""
    from confluent_kafka import KafkaException

    try:
        yield
    except (KafkaException, TypeError, ValueError) as e:
        error = e.args[0]
        text = said(error) if isinstance(e, KafkaException) else " ".join(str(error).split())
        raise ConfigError(f"{who}: {text}") from None
