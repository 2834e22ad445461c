"""How a configuration is stored, behind what users call: what the tests drive."""

from heronpy.api._config import config_to_proto, sanitize_config

__all__ = ["config_to_proto", "sanitize_config"]
