"""What `reconcile` found, as one HTML page that needs nothing else: no script, no font, no other file."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from html import escape
from typing import Any

from heronpy.pipeline import charts as _charts
from heronpy.pipeline.batch_times import batch_name, batch_names
from heronpy.pipeline.charts import Bar, number
from heronpy.pipeline.drift import Difference, Totals, ViewDrift
from heronpy.pipeline.reconcile import Reconciliation, shown

_CHARTED_KEYS = 12
_LISTED_BATCHES = 500

_STYLE = """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1c2430;--soft:#5d6a7a;--line:#dfe4ea;
--a:#d9622b;--b:#2f6fb2;--ok:#8fa1b3;--good:#1f7a4d}
@media(prefers-color-scheme:dark){:root{--page:#12161c;--card:#1b212a;--text:#e6eaf0;--soft:#98a5b5;--line:#2e3743;
--a:#f08a55;--b:#6ba6e0;--ok:#5b6b7d;--good:#5cc492}}
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif}
main{max-width:860px;margin:0 auto;padding:32px 16px 64px}
h1{font-size:26px;margin:0 0 4px}h2{font-size:20px;margin:0}h3{font-size:14px;margin:24px 0 6px}
p{margin:4px 0}.soft{color:var(--soft)}
section{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:20px 24px;margin-top:20px}
.tiles{display:flex;flex-wrap:wrap;gap:12px;margin:14px 0 4px}
.tile{flex:1 1 96px;border:1px solid var(--line);border-radius:8px;padding:8px 12px}
.tile b{display:block;font-size:20px;font-variant-numeric:tabular-nums}.tile span{color:var(--soft);font-size:13px}
.good b{color:var(--good)}.bad b{color:var(--a)}
svg{width:100%;height:auto;display:block}
svg .a{fill:var(--a)}svg .b{fill:var(--b)}svg .ok{fill:var(--ok)}
svg .grid{stroke:var(--line)}svg .axis{stroke:var(--soft)}
svg text{fill:var(--text);font:12px system-ui,sans-serif}svg .tick{fill:var(--soft)}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}
th{text-align:left;color:var(--soft);font-weight:500}
th,td{padding:4px 14px 4px 0;border-bottom:1px solid var(--line);vertical-align:top}
td{overflow-wrap:anywhere}td:last-child{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap;overflow-wrap:normal}
details summary{cursor:pointer;color:var(--soft);margin-top:20px}
"""


def html(found: Reconciliation) -> str:
    """The report as a page. Everything that came from data is escaped."""
    name = escape(found.job)
    made = datetime.fromtimestamp(found.made_at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    closed = (
        "No batch is closed yet"
        if found.committed_watermark is None
        else f"Batches are closed up to {found.committed_watermark}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{name}: live and batch</title><style>{_STYLE}</style></head><body><main>"
        f"<h1>{name}: live and batch</h1>"
        f'<p class="soft">Made {made}. {closed}; a batch is {found.batch_length_ms / 1000:g} s of event time. '
        "Drift is what the live view has more (or less) than the batch view.</p>"
        f"{''.join(_view(found, view) for view in found.views)}</main></body></html>\n"
    )


def _view(found: Reconciliation, view: ViewDrift) -> str:
    head = f"<section><h2>{escape(view.view)}</h2>"
    if not view.total.keys:
        return f'{head}<p class="soft">Nothing to compare: no closed batch has rows in the live store.</p></section>'
    return "".join(
        [
            head,
            f'<p class="soft">{_batches_text(found, view)}</p>',
            _tiles(view.total),
            _chart("Drift by batch", _by_batch(found, view)),
            _chart("Keys that drifted most", _top_keys(view)),
            _chart("Keys by drift", _distribution(view)),
            _worst(view),
            _batch_table(found, view),
            "</section>",
        ]
    )


def _batches_text(found: Reconciliation, view: ViewDrift) -> str:
    many = batch_names(sorted(view.batches), found.batch_length_ms)
    return f"{many[0].upper()}{many[1:]}, {view.total.keys:,} keys."


def _tiles(total: Totals) -> str:
    tiles = [("keys", f"{total.keys:,}", ""), ("equal", f"{total.equal:,}", "")]
    tiles.append(("drifted", f"{total.drifted:,}", "bad" if total.drifted else "good"))
    if total.drift is not None:
        tiles += [
            ("live", number(total.live), ""),
            ("batch", number(total.batch), ""),
            (f"drift, {percent(total.percent)}", signed(total.drift), "bad" if total.drift else "good"),
        ]
    inner = "".join(
        f'<div class="tile {kind}"><b>{value}</b><span>{label}</span></div>' for label, value, kind in tiles
    )
    return f'<div class="tiles">{inner}</div>'


def _chart(title: str, svg: str) -> str:
    return f"<h3>{title}</h3>{svg}" if svg else ""


def _by_batch(found: Reconciliation, view: ViewDrift) -> str:
    numeric = view.total.drift is not None
    bars = []
    for batch, totals in view.batches.items():
        value = (totals.drift or 0) if numeric else totals.drifted
        what = f"{signed(value)} ({percent(totals.percent)})" if numeric else f"{value:,} keys differ"
        label = batch_name(batch, found.batch_length_ms)
        bars.append(Bar(label, value, f"{label}: {what}", "a" if value > 0 else "b" if value else "ok"))
    return _charts.columns(_charts.thinned(bars), title="Drift by batch")


def _top_keys(view: ViewDrift) -> str:
    bars = [
        Bar(
            shown(d.key), d.drift, f"{shown(d.key)}: live {value_of(d.live)}, batch {value_of(d.batch)}", _kind(d.drift)
        )
        for d in view.worst[:_CHARTED_KEYS]
        if d.drift
    ]
    return _charts.rows(bars, title="Keys that drifted most")


def _kind(drift: float) -> str:
    return "a" if drift > 0 else "b"


def _distribution(view: ViewDrift) -> str:
    counts = {**view.buckets, **({"different": view.other} if view.other else {})}
    bars = [
        Bar(
            label,
            count,
            f"{label}: {count:,} keys",
            "ok" if label == "equal" else "b" if label.endswith("only") else "a",
        )
        for label, count in counts.items()
        if count
    ]
    return _charts.rows(bars, title="Keys by drift")


def _worst(view: ViewDrift) -> str:
    if not view.worst:
        return "<h3>Keys that drifted</h3><p>None.</p>"
    rest = view.total.drifted - len(view.worst)
    more = f'<p class="soft">and {rest:,} more keys</p>' if rest > 0 else ""
    rows = (
        f"<tr><td>{escape(shown(d.key))}</td><td class=n>{escape(value_of(d.live))}</td>"
        f"<td class=n>{escape(value_of(d.batch))}</td><td class=n>{signed(d.drift)}</td>"
        f"<td class=n>{percent(d.percent)}</td><td>{d.state}</td></tr>"
        for d in view.worst
    )
    return "<h3>Keys that drifted</h3>" + _table(("key", "#live", "#batch", "#drift", "#share", ""), rows) + more


def _batch_table(found: Reconciliation, view: ViewDrift) -> str:
    listed = list(view.batches.items())[-_LISTED_BATCHES:]
    left_out = len(view.batches) - len(listed)
    rows = (
        f"<tr><td>{batch_name(batch, found.batch_length_ms)}</td><td class=n>{batch}</td><td class=n>{t.keys:,}</td>"
        f"<td class=n>{t.drifted:,}</td><td class=n>{number(t.live)}</td><td class=n>{number(t.batch)}</td>"
        f"<td class=n>{signed(t.drift)}</td><td class=n>{percent(t.percent)}</td></tr>"
        for batch, t in listed
    )
    heads = ("batch (UTC)", "#id", "#keys", "#drifted", "#live", "#batch", "#drift", "#share")
    note = f'<p class="soft">{left_out:,} earlier batches are left out of this table.</p>' if left_out else ""
    return f"<details><summary>All batches</summary>{note}{_table(heads, rows)}</details>"


def _table(heads: Iterable[str], rows: Iterable[str]) -> str:
    head = "".join(f"<th class=n>{h[1:]}</th>" if h.startswith("#") else f"<th>{h}</th>" for h in heads)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'


def signed(value: float | None) -> str:
    """A drift with its sign: +34, -2, 0; `-` for None."""
    if not value:
        return number(value)
    return f"{'+' if value > 0 else '-'}{number(abs(value))}"


def percent(value: float | None) -> str:
    """A share: +2.8 %; `-` for None."""
    return "-" if value is None else f"{value:+.3g} %" if value else "0 %"


def value_of(value: Any) -> str:
    """A result, in one line."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number(value) if value == value and abs(value) != float("inf") else str(value)
    return "-" if value is None else shown(value)


def worst_rows(view: ViewDrift) -> list[tuple[Difference, tuple[str, ...]]]:
    """The worst keys with the texts of a table: key, live, batch, drift, share, state."""
    return [
        (d, (shown(d.key), value_of(d.live), value_of(d.batch), signed(d.drift), percent(d.percent), d.state))
        for d in view.worst
    ]
