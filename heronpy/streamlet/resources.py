"""What a container asks for."""

from __future__ import annotations

from heronpy.errors import ConfigError

_MIB = 1 << 20


class Resources:
    """CPU in cores, RAM in bytes."""

    def __init__(self) -> None:
        self._cpu = 1.0
        self._ram = 100 * _MIB

    def set_cpu(self, cpu: float) -> Resources:
        """Cores."""
        self._cpu = float(_positive("cpu", cpu))
        return self

    def set_ram(self, ram: int) -> Resources:
        """Bytes."""
        self._ram = int(_positive("ram", ram))
        return self

    def set_ram_in_mb(self, ram: int) -> Resources:
        """MiB."""
        return self.set_ram(int(_positive("ram", ram) * _MIB))

    def set_ram_in_gb(self, ram: int) -> Resources:
        """GiB."""
        return self.set_ram(int(_positive("ram", ram) * (_MIB << 10)))

    def get_cpu(self) -> float:
        """Cores."""
        return self._cpu

    def get_ram(self) -> int:
        """Bytes."""
        return self._ram


def _positive(name: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        raise ConfigError(f"{name} must be a positive number, not {value!r}")
    return value
