"""The plot of what runs and queries cost over the length of a history."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from heronpy.bench import history

IMAGES = Path(__file__).parents[2] / "docs" / "images"


def plotted(patch: pytest.MonkeyPatch, *arguments: object) -> None:
    patch.setattr(sys, "argv", ["history", *map(str, arguments)])
    history.main()


def test_the_plot_of_the_docs_is_made_of_its_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plotted(monkeypatch, "--plot", IMAGES / "history.json", "--out", tmp_path / "made.svg")
    assert (tmp_path / "made.svg").read_text() == (IMAGES / "history.svg").read_text()


def test_what_costs_more_than_the_target_is_above_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for last, is_above in ((2.9, False), (3.1, True)):
        figures = tmp_path / "figures.json"
        figures.write_text(f'{{"batches": [10, 1000], "rows": {{"a run": [2.0, {last}]}}}}')
        plotted(monkeypatch, "--plot", figures, "--out", tmp_path / "made.svg")
        svg = (tmp_path / "made.svg").read_text()
        limit = float(re.findall(r'<line [^>]*y1="([0-9.]+)"', svg)[0])
        points = re.findall(r'<circle cx="[0-9.]+" cy="([0-9.]+)"', svg)
        assert (float(points[-1]) < limit) == is_above


def test_a_plot_without_a_file_to_write_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        plotted(monkeypatch, "--plot", IMAGES / "history.json")
    assert "--plot needs --out" in capsys.readouterr().err
