"""A real Kafka broker for tests: started on free ports, gone when the test process is gone."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import socket
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from heronpy.testing._eventually import eventually_sync
from heronpy.testing._server_process import Place, Server, free_port, listening
from heronpy.testing.certificates import make_certificates

KAFKA_JARS_ENV: Final = "HERON_TEST_KAFKA_JARS"

# One broker that is its own controller. Ids are fixed: formatting the directory by Kafka's tool starts a JVM more.
_ID = "heronpyTestsAAAAAAAAAA"
_META = f"version=1\ncluster.id={_ID}\nnode.id=1\ndirectory.id={_ID}\n"
_CONFIG = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{bind}:{controller_port}
listeners=PLAINTEXT://{bind}:{port},SASL_SSL://{bind}:{sasl_port},SSL://{bind}:{tls_port},\
CONTROLLER://{bind}:{controller_port}
advertised.listeners=PLAINTEXT://{bind}:{port},SASL_SSL://{bind}:{sasl_port},SSL://{bind}:{tls_port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL
sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_{user}="{password}";
listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
ssl.keystore.type=PEM
ssl.keystore.location={directory}/server.pem
ssl.truststore.type=PEM
ssl.truststore.location={directory}/ca.pem
listener.name.ssl.ssl.client.auth=required
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS;User:{user};User:CN={user}
log.dirs={data}
auto.create.topics.enable=false
log.retention.ms=-1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.network.threads=1
num.io.threads=2
log.cleaner.dedupe.buffer.size=16777216
"""


@functools.cache
def kafka_jars() -> Path | None:
    """The directory with Kafka's jars: the environment's word, or the newest that `make servers` has downloaded."""
    if given := os.environ.get(KAFKA_JARS_ENV):
        return Path(given)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return max((cache / "heronpy").glob("kafka-[0-9]*"), default=None)


def kafka_missing() -> str | None:
    """Why no Kafka can be started here, or None if one can."""
    if shutil.which("java") is None:
        return "no Kafka: java is not installed"
    if kafka_jars() is None:
        return f"no Kafka: make servers, or put the directory of its jars into {KAFKA_JARS_ENV}"
    if importlib.util.find_spec("confluent_kafka") is None:
        return "no Kafka: pip install 'heron-engine[kafka]'"
    return None


class KafkaServer(Server):
    """One real Kafka broker with its data in a directory. A context manager: runs for the duration of the block.

    Topics are made by `create_topic` only. What it has answered survives a kill, as long as the machine lives.
    """

    name = "Kafka"
    port_taken = "Address already in use"
    user: Final = "heron"
    password: Final = "not-a-secret"

    def __init__(self, directory: Path, *, port: int = 0, place: Place | None = None) -> None:
        """Describe the server; `start` starts it.

        Args:
            directory: For its configuration, data and output; made if missing.
            port: For clients; 0: a free one.
            place: Where it runs, if not on this host.
        """
        super().__init__(directory, port, place)
        self._sasl_port = 0
        self._tls_port = 0
        self._admin: Any = None

    @property
    def servers(self) -> str:
        """host:port, as `bootstrap.servers` has it."""
        return f"{self.bind}:{self.port}"

    @property
    def sasl_servers(self) -> str:
        """The same, where clients prove who they are by SASL, over TLS: `user` with `password` by PLAIN, those of
        `add_user` by SCRAM."""
        return f"{self.bind}:{self._sasl_port}"

    @property
    def tls_servers(self) -> str:
        """The same, where clients prove who they are by a certificate."""
        return f"{self.bind}:{self._tls_port}"

    def sasl_options(self, mechanism: str = "PLAIN", user: str = user) -> dict[str, str]:
        """What a client of `sasl_servers` needs, less the password."""
        sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.username": user}
        return sasl | {"ssl.ca.location": str(self.directory / "ca.pem")}

    @property
    def tls_options(self) -> dict[str, str]:
        """What a client of `tls_servers` needs: certificate and key of `user` are in one file."""
        own = str(self.directory / "client.pem")
        files = {"ssl.certificate.location": own, "ssl.key.location": own}
        return {"security.protocol": "SSL", "ssl.ca.location": str(self.directory / "ca.pem"), **files}

    def add_user(self, user: str, password: str, mechanism: str = "SCRAM-SHA-512") -> None:
        """Make a user, who may do nothing unless it is `KafkaServer.user`, and wait until it can log in."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        how = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], 4096)
        new = UserScramCredentialUpsertion(user, how, password.encode())
        self.admin().alter_user_scram_credentials([new])[user].result(60)
        login = {**self.sasl_options(mechanism, user), "sasl.password": password, "log_level": 0}

        def known() -> None:  # the controller has answered; the broker follows it
            try:
                AdminClient({"bootstrap.servers": self.sasl_servers, **login}).list_topics(timeout=10)
            except KafkaException as e:
                raise AssertionError(f"{user} cannot log in") from e

        eventually_sync(known)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Make a topic, and wait until it is there."""
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, partitions, 1, config=dict(config or {}))
        self.admin().create_topics([new])[topic].result(60)
        self._wait_for(topic, partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Make it so many partitions in all, and wait until they are there."""
        from confluent_kafka.admin import NewPartitions

        self.admin().create_partitions([NewPartitions(topic, partitions)])[topic].result(60)
        self._wait_for(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin().delete_topics([topic])[topic].result(60)

        def gone() -> None:
            assert topic not in self.admin().list_topics(timeout=60).topics

        eventually_sync(gone)

    def _wait_for(self, topic: str, partitions: int) -> None:
        """The controller has answered; the broker follows it."""

        def there() -> None:
            found = self.admin().list_topics(topic, timeout=60).topics[topic]
            assert len(found.partitions) == partitions
            assert all(partition.leader == 1 for partition in found.partitions.values())

        eventually_sync(there)

    def admin(self) -> Any:
        """An AdminClient of confluent_kafka. One for all: what is asked of one without a reference is not answered."""
        from confluent_kafka.admin import AdminClient

        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})
        return self._admin

    def limit_producers(self, client_id: str, bytes_per_s: int) -> None:
        """Give the producers of this `client.id` a quota, as operators do: beyond it the broker answers late.

        librdkafka has no call for it, so this is the request itself (AlterClientQuotas, version 0).
        """

        def text(value: str) -> bytes:
            return struct.pack(">h", len(value)) + value.encode()

        one = struct.pack(">i", 1)
        entity = one + text("client-id") + text(client_id)
        limits = one + text("producer_byte_rate") + struct.pack(">d?", bytes_per_s, False)
        request = struct.pack(">hhi", 49, 0, 0) + text("tests") + one + entity + limits + b"\0"
        with socket.create_connection((self.bind, self.port), timeout=60) as s, s.makefile("rb") as answers:
            s.sendall(struct.pack(">i", len(request)) + request)
            answer = answers.read(*struct.unpack(">i", answers.read(4)))
        _, _, entries, error = struct.unpack_from(">iiih", answer)  # number of the request, ms of throttling
        assert (entries, error) == (1, 0), answer

    def settle(self, topic: str) -> None:
        """Wait until no transaction is open in a topic: what was committed is visible a moment after the answer."""
        from confluent_kafka import IsolationLevel, TopicPartition
        from confluent_kafka.admin import OffsetSpec

        numbers = self.admin().list_topics(topic, timeout=60).topics[topic].partitions
        places = {TopicPartition(topic, number): OffsetSpec.latest() for number in numbers}

        def ends(level: IsolationLevel) -> dict[int, int]:
            asked = self.admin().list_offsets(places, isolation_level=level)
            return {place.partition: answer.result(60).offset for place, answer in asked.items()}

        def settled() -> None:
            visible = ends(IsolationLevel.READ_COMMITTED)
            assert visible == ends(IsolationLevel.READ_UNCOMMITTED)

        eventually_sync(settled, within_s=120)

    def group_offsets(self, group: str, topic: str) -> dict[int, int]:
        """What a group has committed, by partition."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            partitions = self.admin().list_topics(topic, timeout=60).topics[topic].partitions
            found = consumer.committed([TopicPartition(topic, number) for number in partitions], timeout=60)
        finally:
            consumer.close()
        return {each.partition: each.offset for each in found if each.offset >= 0}

    def _command(self) -> Sequence[str]:
        jars = kafka_jars()
        assert jars is not None, kafka_missing()
        config, data = self.directory / "server.properties", self.directory / "data"
        if not self._fixed_port or not config.exists():
            self._sasl_port, self._tls_port = free_port(), free_port()
            make_certificates(self.directory, "broker", self.user)
            data.mkdir(exist_ok=True)
            (data / "meta.properties").write_text(_META)
            settings = _CONFIG.format(
                bind=self.bind,
                port=self.port,
                sasl_port=self._sasl_port,
                tls_port=self._tls_port,
                controller_port=free_port(),
                user=self.user,
                password=self.password,
                data=data,
                directory=self.directory,
            )
            config.write_text(settings)
        options = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        options += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        return ["java", *options, "kafka.Kafka", str(config)]

    def _serving(self) -> bool:
        return listening(self.port, self.bind)  # it accepts connections as the last thing of its start
