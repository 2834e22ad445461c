"""`/docs`: the API on one page, made from its OpenAPI schema. No scripts, nothing from other hosts."""

from __future__ import annotations

import base64
import hashlib
from html import escape
from typing import Any

from starlette.responses import HTMLResponse

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "code,h2{font-family:ui-monospace,monospace}h2{font-size:1rem;margin:1.6rem 0 .2rem}"
    "table{border-collapse:collapse}td{padding:.1rem .8rem .1rem 0;vertical-align:top}p{margin:.2rem 0}"
)
_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


def docs_page(schema: dict[str, Any]) -> HTMLResponse:
    """Every operation with its description, parameters and statuses."""
    info = schema["info"]
    parts = [
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1><p>{escape(info.get('description', ''))}</p>",
        "<p>For tools: <a href='openapi.json'>openapi.json</a></p>",
    ]
    for path, operations in sorted(schema["paths"].items()):
        for method, operation in sorted(operations.items()):
            parts.append(_operation(path, method, operation))
    page = (
        f"<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>{escape(info['title'])}: API</title><style>{_STYLE}</style>{''.join(parts)}</html>"
    )
    headers = {"content-security-policy": _POLICY, "x-frame-options": "DENY", "referrer-policy": "no-referrer"}
    return HTMLResponse(page, headers=headers)


def _operation(path: str, method: str, operation: dict[str, Any]) -> str:
    deprecated = " (deprecated)" if operation.get("deprecated") else ""
    rows = "".join(_parameter(parameter) for parameter in operation.get("parameters", ()))
    text = escape(operation.get("description", "")).replace("\n\n", "</p><p>")
    answers = " · ".join(
        f"{escape(status)} {_answer(response)}" for status, response in sorted(operation["responses"].items())
    )
    return (
        f"<section><h2>{escape(method.upper())} {escape(path)}{deprecated}</h2><p>{text}</p>"
        f"<table>{rows}</table><p><small>{answers}</small></p></section>"
    )


def _parameter(parameter: dict[str, Any]) -> str:
    needed = "required" if parameter.get("required") else "optional"
    text = escape(parameter.get("description", ""))
    return f"<tr><td><code>{escape(parameter['name'])}</code><td>{needed}<td>{text}</tr>"


def _answer(response: dict[str, Any]) -> str:
    content: dict[str, Any] = next(iter(response.get("content", {}).values()), {})
    name = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
    return f"<code>{escape(name)}</code>" if name else escape(response.get("description", ""))
