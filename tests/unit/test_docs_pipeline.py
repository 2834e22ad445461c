"""The page about the data pipeline has all verbs and options of `heron pipeline`, and no others."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from heronpy import cli
from heronpy.pipeline.cli import pipeline

PAGE = (Path(__file__).parents[2] / "docs/pipeline.md").read_text()
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
OF_OTHERS = {"--help"}


def options_of(verb: str, capsys: pytest.CaptureFixture[str]) -> set[str]:
    assert cli.run(["pipeline", verb, "--help"]) == 0
    return {*OPTION.findall(capsys.readouterr().out)} - OF_OTHERS


def test_the_page_has_each_verb_and_option_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    known = {verb: options_of(verb, capsys) for verb in pipeline.verbs}
    told = {*OPTION.findall(PAGE)}
    assert {option for options in known.values() for option in options} - told - {"--verbose"} == set()
    assert told - {option for options in known.values() for option in options} == set()
    assert [verb for verb in known if f"heron pipeline {verb}" not in PAGE and f"`{verb}`" not in PAGE] == []


def test_each_command_on_the_page_has_only_options_of_its_verb(capsys: pytest.CaptureFixture[str]) -> None:
    commands = re.findall(r"^heron pipeline (\w+) (.*?)(?:  #.*)?$", PAGE, re.MULTILINE)
    assert len(commands) > 20
    for verb, words in commands:
        assert {*OPTION.findall(words)} <= options_of(verb, capsys), verb
