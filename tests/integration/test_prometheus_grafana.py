"""Putting dashboards into Grafana, against a server that answers as Grafana's API does."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from grafana_server import TOKEN, GrafanaServer

from heronpy.errors import UnavailableError, UsageError
from heronpy.viz import GrafanaClient


@pytest.fixture
def grafana() -> Iterator[GrafanaServer]:
    server = GrafanaServer()
    yield server
    server.close()


def test_a_dashboard_is_put_and_put_again(grafana: GrafanaServer) -> None:
    client = GrafanaClient(f"{grafana.url}/grafana/", TOKEN)
    assert client.put({"uid": "heron-1", "title": "old"}) == f"{grafana.url}/grafana/d/heron-1"
    client.put({"uid": "heron-1", "title": "new"})
    assert {uid: found["title"] for uid, found in grafana.dashboards.items()} == {"heron-1": "new"}


@pytest.mark.parametrize("token", ["", "wrong"])
def test_a_wrong_token_is_said_and_not_shown(grafana: GrafanaServer, token: str) -> None:
    with pytest.raises(UnavailableError, match=r"401, the token is missing, wrong.*--token-env") as caught:
        GrafanaClient(f"{grafana.url}/grafana", token).put({"uid": "x"})
    assert "Bearer" not in str(caught.value)


def test_grafana_s_own_reason_is_in_the_error(grafana: GrafanaServer) -> None:
    grafana.answer = (400, '{"message": "Dashboard title cannot be empty"}', {})
    with pytest.raises(UnavailableError, match="refuses the dashboard: 400 Dashboard title cannot be empty"):
        GrafanaClient(grafana.url, TOKEN).put({"uid": "x"})


def test_the_token_does_not_follow_a_redirect(grafana: GrafanaServer) -> None:
    other = GrafanaServer()
    grafana.answer = (302, "", {"Location": f"{other.url}/grafana/api/dashboards/db"})
    try:
        with pytest.raises(UnavailableError, match=f"it has moved to {other.url}"):
            GrafanaClient(grafana.url, TOKEN).put({"uid": "x"})
        assert other.authorization == []
    finally:
        other.close()


@pytest.mark.parametrize("body", ["<html>", "[]"])
def test_a_server_that_is_no_grafana_is_found_out(grafana: GrafanaServer, body: str) -> None:
    grafana.answer = (200, body, {})
    with pytest.raises(UnavailableError, match="answers, but not as Grafana does"):
        GrafanaClient(grafana.url, TOKEN).put({"uid": "x"})


def test_nobody_there(grafana: GrafanaServer) -> None:
    grafana.close()
    with pytest.raises(UnavailableError, match=r"does not answer: .*refused"):
        GrafanaClient(grafana.url, TOKEN).put({"uid": "x"})


@pytest.mark.parametrize("url", ["grafana.example.org", "file:///etc/passwd", "ftp://x", "http://"])
def test_only_urls_of_web_servers(url: str) -> None:
    with pytest.raises(UsageError, match="must begin with http"):
        GrafanaClient(url)


def test_a_password_on_the_command_line_is_refused_and_not_repeated() -> None:
    with pytest.raises(UsageError, match="--token-env") as caught:
        GrafanaClient("https://admin:hunter2@grafana.example.org")
    assert "hunter2" not in str(caught.value)
