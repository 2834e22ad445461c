"""The page about hosts: its keys are keys, and its examples configurations."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from heron_scheduler.slurm import SlurmScheduler

from heronpy.config import KEYS, EngineConfig

TEXT = (Path(__file__).parents[2] / "docs/hosts.md").read_text()


def test_each_key_on_the_page_is_one() -> None:
    assert set(re.findall(r"\bheron\.[a-z.]+[a-z]", TEXT)) - KEYS.keys() - SlurmScheduler.config_keys == set()


@pytest.mark.parametrize("example", re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL))
def test_each_example_on_the_page_is_a_configuration(example: str) -> None:
    values = yaml.safe_load(example)
    assert EngineConfig.from_keys(values).to_keys() == values
