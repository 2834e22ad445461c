"""The writer of a Kafka sink that writes exactly once."""

# A transaction of Kafka cannot be prepared by one process and committed by another: it is aborted when its producer is
# gone. So the messages wait in the checkpoint, and a commit is a whole transaction: they and a progress record.
#
# Kafka fences by transactional ids: who initializes one ends the transactions of all that did before. The id of a
# writer has its task and its restore epoch; who opens the sink in a later epoch finds the ids of older ones in the
# progress topic, and initializes each. So it is certain that none of them commits any more when the progress is read.
# An id without the epoch would not do: tasks that begin at the same time would fence each other, and one that is
# gone would never be fenced.
#
# A topology that begins with another's savepoint has prepared messages of that one's sink, which may go on, and others
# may have begun with the same savepoint. So it commits them as a writer of that sink, of an epoch before all others,
# and ends the transactions of all its writers before it reads the progress. These find their producer fenced, open the
# sink again, and fence it in turn, as they do with older epochs: then they see what it has committed.

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import msgspec

from heronpy.connectors._held_rows import NOTHING, HeldRowsWriter, PreparedRows
from heronpy.connectors._kafka_producer import PART_BYTES, produce, producer, refusal, size
from heronpy.connectors._kafka_progress import PROGRESS, WRITERS, ProgressLog, Writer, make_topic
from heronpy.connectors.kafka_client import Admin, Cluster, Errors, refused, said
from heronpy.connectors.spi import SinkContext
from heronpy.errors import CheckpointError, HeronError, NotFoundError, UnavailableError

_TRIES: Final = 3
_ANSWER_S: Final = 30.0
_LISTEN_S: Final = 1.0
_TRANSACTION_MS: Final = 60_000
"""What a transaction may take …"""
_TRANSACTION_MS_PER_MB: Final = 10_000
"""… and so much more for what is written in it, …"""
_TRANSACTION_MS_MAX: Final = 900_000
"""… as far as brokers allow it, unless they are configured otherwise."""
_TRANSACTION_OPTION: Final = "transaction.timeout.ms"
_GUEST_EPOCH: Final = -1
"""Of who commits what the sink of another submission has prepared."""
Message = tuple[str, tuple[Any, ...]]
"""A topic, and value, key, headers, time and partition."""


class TransactionalWriter(HeldRowsWriter):
    """The exactly-once face of `KafkaSink`."""

    def __init__(
        self, cluster: Cluster, progress_topic: str, row: Callable[[Any], tuple[Any, ...]], context: SinkContext
    ) -> None:
        """Open the sink, and fence older writers.

        Raises:
            HeronError: as `Sink.open_transactional`.
        """
        super().__init__(context)
        self._cluster = cluster
        self._progress_cluster = dataclasses.replace(cluster, topic=progress_topic)
        self._row = row
        self._me = Writer(self._sink, self._task, self._epoch)
        self._errors = Errors(cluster.who)
        self._failure = ""
        """Why the last transaction failed."""
        self._producer: Any = None
        self._transaction_ms = _TRANSACTION_MS
        self._checkpoints: dict[tuple[str, int], int] = {}
        admin = Admin(cluster)
        admin.describe()
        make_topic(admin.client, progress_topic)
        self._admin = admin.about(progress_topic)
        self._open(claimed=False)

    def row(self, element: Any) -> Any:
        return tuple(self._row(element))

    def commit_rows(self, prepared: PreparedRows) -> None:
        place = (prepared.sink, prepared.task)
        self._allow_time(prepared.rows)
        for _ in range(_TRIES):
            if self._producer is None:
                self._open(claimed=True)
            done = self._checkpoints.get(place)
            if done is None:
                raise self.unknown(f"partition {PROGRESS} of the topic {self._progress_cluster.topic}", prepared)
            if done >= prepared.checkpoint_id:
                return
            messages = [(self._cluster.topic, row) for row in prepared.rows]
            messages.append(self._progress(place, prepared.checkpoint_id))
            if self._transact(messages) if prepared.sink == self._sink else self._commit_as_guest(prepared, messages):
                self._checkpoints[place] = prepared.checkpoint_id
                return
        raise self._unavailable()

    def _allow_time(self, rows: Sequence[Any]) -> None:
        """Have a producer whose transactions may take as long as it takes to write these rows."""
        allowed_ms = _TRANSACTION_MS + sum(map(size, rows)) * _TRANSACTION_MS_PER_MB // 1_000_000
        if self._transaction_ms < min(allowed_ms, _TRANSACTION_MS_MAX):
            self._transaction_ms = min(allowed_ms, _TRANSACTION_MS_MAX)
            self._drop()

    def begin_progress(self) -> None:
        place = (self._sink, self._task)
        for _ in range(_TRIES):
            if self._producer is None:
                self._open(claimed=True)
            if place in self._checkpoints:
                return
            if self._transact([self._progress(place, NOTHING)]):
                self._checkpoints[place] = NOTHING
                return
        raise self._unavailable()

    def _commit_as_guest(self, prepared: PreparedRows, messages: Sequence[Message]) -> bool:
        """Commit what the sink of another submission has prepared, unless it is there. False: perhaps it is.

        Registered first, then everybody is fenced, and then the progress is read: writers of that sink do the same.
        """
        guest = Writer(prepared.sink, prepared.task, _GUEST_EPOCH)
        self._must([self._writer(guest, self._owner.encode())])
        own, log = self._producer, ProgressLog(self._progress_cluster, self._admin, self._errors)
        try:
            self._producer = self._initialized(guest)
            log.read_writers()
            for writer in log.writers:
                if writer.sink == guest.sink and writer != guest:
                    self._initialized(writer)
            log.read_progress()
            done = log.checkpoints.get((prepared.sink, prepared.task), NOTHING)
            return done >= prepared.checkpoint_id or self._transact(messages)
        finally:
            log.close()
            if self._producer is not own:
                self._drop()
            self._producer = own

    def close(self) -> None:
        self._drop()

    # Opening

    def _open(self, *, claimed: bool) -> None:
        """Become the writer of this task, and fence those of older epochs.

        Args:
            claimed: It was before, and has lost its producer.
        """
        log = ProgressLog(self._progress_cluster, self._admin, self._errors)
        try:
            log.read_writers()
            self._check_newest(log, claimed)
            self._producer = self._initialized(self._me)
            self._must([self._writer(self._me, self._owner.encode())])
            log.read_writers()
            self._check_newest(log, True)
            # One's own first: the other tasks do the same just now.
            self._fence(writer for writer in log.writers if writer.task == self._task)
            log.read_writers()
            self._fence(log.writers)
            log.read_progress()
            self._checkpoints = log.checkpoints
        finally:
            log.close()

    def _check_newest(self, log: ProgressLog, claimed: bool) -> None:
        newest = max((writer.epoch for writer in log.writers if writer.sink == self._sink), default=0)
        if newest > self._epoch or (claimed and log.writers.get(self._me, self._owner) != self._owner):
            raise self.fenced()

    def _fence(self, writers: Iterable[Writer]) -> None:
        older = [writer for writer in writers if writer.sink == self._sink and writer.epoch < self._epoch]
        for writer in older:
            self._initialized(writer)
        # Guests stay: one may be about to begin anew, and must be found again then.
        if gone := [self._writer(writer, None) for writer in older if writer.epoch != _GUEST_EPOCH]:
            self._must(gone)

    def _initialized(self, writer: Writer) -> Any:
        """A producer in the place of a writer: what that has not committed is aborted, and always will be."""
        from confluent_kafka import KafkaError, KafkaException

        given_ms = self._cluster.options.get(_TRANSACTION_OPTION)
        config = {"transactional.id": writer.transactional_id, _TRANSACTION_OPTION: given_ms or self._transaction_ms}
        made = producer(self._cluster, self._errors, config)
        deadline_s = time.monotonic() + max(_ANSWER_S, self._cluster.timeout_s)
        while True:
            try:
                made.init_transactions(self._cluster.timeout_s)
                return made
            except KafkaException as e:
                error = e.args[0]
                longer_ms = 0 if given_ms else self._transaction_ms - _TRANSACTION_MS
                if error.code() == KafkaError.INVALID_TRANSACTION_TIMEOUT and longer_ms:
                    self._transaction_ms = _TRANSACTION_MS + longer_ms // 4  # they do not say what they allow
                    return self._initialized(writer)
                if not error.retriable() or time.monotonic() > deadline_s:
                    raise refused(error, self._cluster) from None

    # Transactions

    def _must(self, messages: Sequence[Message]) -> None:
        if not self._transact(messages):
            raise self._unavailable()

    def _transact(self, messages: Sequence[Message]) -> bool:
        """Write messages in one transaction. False: perhaps they are there, and there is no producer any more.

        Raises:
            CheckpointError: they will never be taken.
        """
        from confluent_kafka import KafkaException

        failed: list[Any] = []
        try:
            self._producer.begin_transaction()
            waiting = 0
            for topic, row in messages:
                produce(self._producer, topic, failed.append, *row)
                waiting += size(row)
                if waiting > PART_BYTES:
                    self._flush(failed)
                    waiting = 0
            self._commit()
            self._errors.well()
            return True
        except KafkaException as e:
            error = failed[0] if failed else e.args[0]
            self._failure = said(error)
            with contextlib.suppress(KafkaException):
                self._producer.abort_transaction(self._cluster.timeout_s)
            self._drop()
            reason = refusal(error, self._cluster)
            if isinstance(reason, CheckpointError):
                raise reason from None
            if isinstance(reason, NotFoundError):
                raise self._unavailable() from None
            return False

    def _flush(self, failed: Sequence[Any]) -> None:
        """Wait until all messages are taken, or one has failed."""
        from confluent_kafka import KafkaException

        while not failed and self._producer.flush(_LISTEN_S):
            pass  # each message has a timeout
        if failed:
            raise KafkaException(failed[0])

    def _commit(self) -> None:
        from confluent_kafka import KafkaException

        deadline_s = time.monotonic() + max(_ANSWER_S, self._cluster.timeout_s)
        while True:
            try:
                self._producer.commit_transaction(self._cluster.timeout_s)
                return
            except KafkaException as e:
                if not e.args[0].retriable() or time.monotonic() > deadline_s:
                    raise

    def _progress(self, place: tuple[str, int], checkpoint_id: int) -> Message:
        value = str(checkpoint_id).encode()
        return self._progress_cluster.topic, (value, msgspec.json.encode(place), (), 0, PROGRESS)

    def _writer(self, writer: Writer, owner: bytes | None) -> Message:
        return self._progress_cluster.topic, (owner, msgspec.json.encode(tuple(writer)), (), 0, WRITERS)

    def _drop(self) -> None:
        made, self._producer = self._producer, None
        if made is not None:
            made.purge()

    def _unavailable(self) -> UnavailableError:
        reason = self._failure
        try:
            for admin in (self._admin.about(self._cluster.topic), self._admin):
                admin.describe()
        except NotFoundError as e:
            return UnavailableError(f"a transaction failed: {e}")
        except HeronError:
            pass
        return UnavailableError(f"{self._cluster.who}: a transaction failed: {reason}")
