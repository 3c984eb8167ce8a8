"""Charts of the last hour, as SVG that the broker draws. Pure.

The script of the page adds the figures under the pointer; without it the charts are complete.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from quorate.broker.console.pages.formats import milliseconds, rate, short_number
from quorate.broker.console.pages.markup import NOTHING, Html, h
from quorate.broker.console.views.series import POINTS_MAX, Line, last, thinned

WIDTH: Final = 600
HEIGHT: Final = 120
_HEADROOM: Final = 1.08
COLORS: Final = 8
"""The colours of lines, as the style sheet numbers them."""

LINES_MAX: Final = COLORS
"""The lines of one chart. Of more, those with the largest newest values are shown."""


class Unit(NamedTuple):
    """The unit of a chart. ``name`` tells it to the script."""

    name: str
    format: Callable[[float | None], str]


BYTES_PER_S: Final = Unit("rate", rate)
COUNT: Final = Unit("count", short_number)
MILLISECONDS: Final = Unit("ms", milliseconds)
PERCENT: Final = Unit("percent", lambda value: "—" if value is None else f"{value:.0f} %")


def chart(title: str, lines: Sequence[Line], unit: Unit, last_at_ms: int, interval_ms: int) -> Html:
    """Return a chart of lines that end at ``last_at_ms``, with a legend of their newest values."""
    left_out = len(lines) - LINES_MAX
    lines = sorted(lines, key=_newest, reverse=True)[:LINES_MAX] if left_out > 0 else lines
    drawn = [Line(line.label, thinned(line.values)) for line in lines]
    points = max((len(line.values) for line in drawn), default=0)
    most = _most([value for line in drawn for value in line.values])
    top = _HEADROOM * (most or 1.0)
    longest = max((len(line.values) for line in lines), default=0)
    step_ms = interval_ms * math.ceil(longest / POINTS_MAX) if longest else interval_ms
    return h(
        "figure",
        h("figcaption", h("span", title, class_="chart-title"), _value(lines, unit)),
        h(
            "div",
            _svg(drawn, points, top, title),
            h("span", unit.format(most) if drawn else "nothing yet", class_="chart-top"),
            h("span", _span(points, step_ms), class_="chart-from"),
            h("span", "now", class_="chart-now"),
            class_="chart-plot",
        ),
        _legend(lines, unit, left_out),
        class_="chart",
        data_unit=unit.name,
        data_last=last_at_ms,
        data_step=step_ms,
    )


def _value(lines: Sequence[Line], unit: Unit) -> Html:
    """Return the newest value of a chart with one line."""
    return h("b", unit.format(last(lines[0].values))) if len(lines) == 1 else NOTHING


def _newest(line: Line) -> float:
    return last(line.values) or 0.0


def _legend(lines: Sequence[Line], unit: Unit, left_out: int) -> Html:
    if len(lines) < 2:
        return NOTHING
    items = [
        h(
            "li",
            h("i", class_=f"dot s{place % COLORS}"),
            line.label,
            " ",
            h("b", unit.format(last(line.values))),
        )
        for place, line in enumerate(lines)
    ]
    more = h("li", f"{left_out} more with less") if left_out > 0 else NOTHING
    return h("ul", items, more, class_="legend")


def _svg(lines: Sequence[Line], points: int, top: float, title: str) -> Html:
    grid = [
        h("line", x1=0, x2=WIDTH, y1=y, y2=y, class_="grid")
        for y in (0.5, HEIGHT / 3, 2 * HEIGHT / 3, HEIGHT - 0.5)
    ]
    return h(
        "svg",
        grid,
        [
            _drawn(place, line, points, top, is_filled=len(lines) == 1)
            for place, line in enumerate(lines)
        ],
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        aria_label=title,
    )


def _drawn(place: int, line: Line, points: int, top: float, *, is_filled: bool) -> Html:
    color = f"s{place % COLORS}"
    path = _path(line.values, points, top)
    if not path:
        return NOTHING
    return Html(
        (h("path", d=_area(path), class_=f"area {color}") if is_filled else NOTHING)
        + h(
            "path",
            d=" ".join(f"M{' L'.join(run)}" for run in path),
            class_=f"line {color}",
            data_label=line.label,
            data_points=",".join("" if math.isnan(one) else f"{one:.4g}" for one in line.values),
        )
    )


def _path(values: Sequence[float], points: int, top: float) -> list[list[str]]:
    """Return the runs of known values as points. Lines end at the right, whatever their length."""
    runs: list[list[str]] = []
    run: list[str] = []
    begin = points - len(values)
    for number, value in enumerate(values):
        if math.isnan(value):
            if run:
                runs.append(run)
            run = []
            continue
        x = WIDTH * (begin + number) / max(points - 1, 1)
        run.append(f"{x:.1f} {HEIGHT - HEIGHT * value / top:.1f}")
    if run:
        runs.append(run)
    return [one if len(one) > 1 else one * 2 for one in runs]


def _area(runs: Sequence[Sequence[str]]) -> str:
    return " ".join(
        f"M{run[0].split()[0]} {HEIGHT} L{' L'.join(run)} L{run[-1].split()[0]} {HEIGHT} Z"
        for run in runs
    )


def _most(values: Sequence[float]) -> float:
    """Return the largest value that is known, or 0."""
    return max((value for value in values if not math.isnan(value)), default=0.0)


def _span(points: int, step_ms: int) -> str:
    minutes = points * step_ms / 60_000
    return f"{minutes:.0f} min ago" if minutes >= 1 else f"{minutes * 60:.0f} s ago"


def spark(values: Sequence[float], points_max: int = 60) -> Html:
    """Return a line without a scale, for a row of a table."""
    drawn = thinned(values, points_max)
    path = _path(drawn, len(drawn), _HEADROOM * (_most(drawn) or 1.0))
    return h(
        "svg",
        h("path", d=_area(path), class_="area s0"),
        h("path", d=" ".join(f"M{' L'.join(run)}" for run in path), class_="line s0"),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        class_="spark",
        aria_hidden="true",
    )
