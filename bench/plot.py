"""The cost of an append over the length of the session, drawn as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from measure import Measured
from tables import duration, medians_of, titles_of

WIDTH, HEIGHT = 860, 460
LEFT, RIGHT, TOP, BOTTOM = 80, 250, 40, 50
CAPTION = "W1: time of one append over the messages already in the session"
FONT = 'font-family="sans-serif" font-size="13"'
COLOURS = ("#6b7280", "#a8a29e", "#15803d", "#2563eb", "#d97706", "#be185d", "#7c3aed")


def _span(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def draw(by_size: Mapping[int, Measured], order: Sequence[str]) -> str:
    """Return a plot with both axes logarithmic, one line per contender."""
    lines = {t: medians_of(by_size, t) for t in order if t in titles_of(by_size)}
    x_low, x_high = _span(list(by_size))
    y_low, y_high = _span([ns for line in lines.values() for ns in line.values()])

    def x(n: float) -> float:
        return LEFT + (math.log10(n) - x_low) / (x_high - x_low) * (WIDTH - LEFT - RIGHT)

    def y(ns: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(ns) - y_low) / (y_high - y_low) * (HEIGHT - TOP - BOTTOM)

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT}>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="22" font-size="15">{escape(CAPTION)}</text>',
    ]
    for power in range(x_low, x_high + 1):
        at = x(10**power)
        out.append(f'<line x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{HEIGHT - BOTTOM}" stroke="#e5e7eb"/>')
        out.append(f'<text x="{at:.1f}" y="{HEIGHT - BOTTOM + 20}" text-anchor="middle">{10**power:,}</text>')
    for power in range(y_low, y_high + 1):
        at = y(10**power)
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#e5e7eb"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{duration(10**power)}</text>')
    for index, (title, line) in enumerate(lines.items()):
        out += _line(title, [(x(n), y(ns)) for n, ns in sorted(line.items())], COLOURS[index % len(COLOURS)])
    out += _legend(list(lines))
    return "\n".join([*out, "</svg>"]) + "\n"


def _line(title: str, points: list[tuple[float, float]], colour: str) -> list[str]:
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py in points)
    dots = [f'<circle cx="{px:.1f}" cy="{py:.1f}" r="3" fill="{colour}"/>' for px, py in points]
    width = 3 if title == "leafward" else 1.5
    return [f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>', *dots]


def _legend(titles: list[str]) -> list[str]:
    out: list[str] = []
    for index, title in enumerate(titles):
        at = TOP + 16 + index * 22
        colour = COLOURS[index % len(COLOURS)]
        left = WIDTH - RIGHT + 16
        out.append(f'<line x1="{left}" y1="{at}" x2="{left + 22}" y2="{at}" stroke="{colour}" stroke-width="3"/>')
        out.append(f'<text x="{left + 30}" y="{at + 4}">{escape(title)}</text>')
    return out
