"""Formats whose schemas are in a schema registry: Avro, JSON Schema, Protobuf."""

# The serializers are confluent-kafka's own. What is added here is what they know nothing of: they travel with the
# program though clients cannot be pickled, and a registry that does not answer is not mistaken for malformed messages.

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from heronpy.connectors._optional import need
from heronpy.connectors.registry_calls import RegistryCalls
from heronpy.errors import ConfigError, HeronError, UnavailableError

_DEFAULTS: Final = {"timeout": 2, "max.retries": 0}
"""A caller tries again, and does not block for long."""
_OF_THE_MESSAGE: Final = (404, 409, 422)
"""Answers of HTTP that say that a schema is unknown or does not fit. They have one of the registry's own codes, too."""
_DENIED: Final = (401, 403)


class RegistryFormat:
    """A format for `KafkaTopic` and `KafkaSink` whose schemas are in a schema registry.

        value=RegistryFormat("http://registry:8081", AvroDeserializer)

    While the registry does not answer, a topic has no records, and a sink fails what it is given: neither takes the
    messages for malformed. A schema is asked for once for each process. A registry that does not answer at all costs a
    task one timeout of two seconds. After that it is asked in the background, at growing intervals, and known schemas
    are used.
    """

    def __init__(
        self,
        url: str,
        make: Callable[[Any], Callable[[Any, Any], Any]],
        *,
        options: Mapping[str, Any] | None = None,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        """Describe the format; the registry is asked when the first message comes.

        Args:
            url: of the registry; several with commas between them.
            make: makes the serializer or deserializer of confluent-kafka from a `SchemaRegistryClient`, in the task.
                It travels with the program.
            options: more of the configuration of `SchemaRegistryClient`. It travels with the program.
            secrets: options that must not: by the names of environment variables of the tasks that have their values,
                as `{"basic.auth.user.info": "REGISTRY_USER_INFO"}`.

        Raises:
            ConfigError: there is no url, or `make` is no function.
        """
        if not url or not callable(make):
            raise ConfigError("RegistryFormat takes the url of a schema registry, and what makes the serializer")
        self._url = url
        self._make = make
        self._options = dict(options or {})
        self._secrets = dict(secrets or {})
        self._place = ("", "value")
        self._convert: Callable[[Any], Any] | None = None

    def __repr__(self) -> str:
        return f"RegistryFormat({self._url!r})"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_convert": None}

    def of(self, topic: str, field: str) -> RegistryFormat:
        """The format of a topic's messages: of `key` or `value`."""
        bound = RegistryFormat(self._url, self._make, options=self._options, secrets=self._secrets)
        bound._place = (topic, field)
        return bound

    def __call__(self, data: Any) -> Any:
        """The element of bytes, or the bytes of an element.

        Raises:
            UnavailableError: the registry does not answer.
            ConfigError: it denies access, or the configuration is wrong.
            Exception: of the serializer: it does not fit its schema, or there is no such schema.
        """
        if self._convert is None:
            self._convert = self._connected()
        return self._convert(data)

    def _connected(self) -> Callable[[Any], Any]:
        need("confluent_kafka", "kafka", repr(self))
        try:
            registry: Any = importlib.import_module("confluent_kafka.schema_registry")
            serialization: Any = importlib.import_module("confluent_kafka.serialization")
        except ImportError as e:
            raise ConfigError(f"{self!r}: {e}: pip install 'confluent-kafka[avro,json,protobuf]'") from e
        config = {**_DEFAULTS, **self._options, "url": self._url}
        for option, variable in self._secrets.items():
            if not (value := os.environ.get(variable)):
                raise ConfigError(f"the environment variable {variable} must have {option} of {self!r}")
            config[option] = value

        def silence(error: Exception) -> str:
            cause = _cause(error, _network_errors())
            return "" if cause is None else f"{self!r} does not answer: {_line(cause)}"

        try:
            convert = self._make(RegistryCalls(registry.SchemaRegistryClient(config), silence))
        except Exception as e:  # it may be the user's own
            raise self._translated(e, registry.SchemaRegistryError) or ConfigError(f"{self!r}: {_line(e)}") from e
        topic, field = self._place
        context = serialization.SerializationContext(topic, field)

        def converted(data: Any) -> Any:
            try:
                return convert(data, context)
            except Exception as e:
                if (error := self._translated(e, registry.SchemaRegistryError)) is not None:
                    raise error from e
                raise

        return converted

    def _translated(self, error: Exception, registry_error: type[Exception]) -> HeronError | None:
        """What of an error is the registry's; None: it is the message's."""
        cause = _cause(error, (registry_error, UnavailableError, *_network_errors()))
        if cause is None or isinstance(cause, UnavailableError):
            return cause
        status = getattr(cause, "http_status_code", 0)
        if status in _DENIED:
            return ConfigError(f"{self!r}: access denied: {_line(cause)}")
        if status in _OF_THE_MESSAGE and getattr(cause, "error_code", None) not in (None, -1, status):
            return None
        return UnavailableError(f"{self!r} does not answer: {_line(cause)}")


def _cause(error: BaseException, kinds: tuple[type[Exception], ...]) -> BaseException | None:
    """The error, or what it came of, that is of one of these kinds."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, kinds):
        cause = cause.__cause__ or cause.__context__
    return cause


def _network_errors() -> tuple[type[Exception], ...]:
    """Of the HTTP clients that confluent-kafka may have loaded."""
    return tuple(sys.modules[name].TransportError for name in ("httpx2", "httpx") if name in sys.modules)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
