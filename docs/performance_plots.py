"""The plots of docs/performance.md: SVG that reads on a light and on a dark page."""
import math
from html import escape

WIDTH, LEFT, RIGHT, TOP = 860, 150, 130, 56
SERIES = ("s1", "s2", "s3", "s4", "s5")  # more lines than that nobody tells apart
STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d8dee4; stroke-width: 1 }
  .even { stroke: #1f2328; stroke-width: 1.5; stroke-dasharray: 5 4 }
  .s1 { fill: #0969da; stroke: #0969da } .s2 { fill: #bc4c00; stroke: #bc4c00 } .s3 { fill: #1a7f37; stroke: #1a7f37 }
  .s4 { fill: #8250df; stroke: #8250df } .s5 { fill: #bf3989; stroke: #bf3989 }
  polyline { fill: none !important; stroke-width: 2 } .label { stroke: none }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d } .even { stroke: #e6edf3 }
    .s1 { fill: #4493f8; stroke: #4493f8 } .s2 { fill: #f0883e; stroke: #f0883e } .s3 { fill: #3fb950; stroke: #3fb950 }
    .s4 { fill: #ab7df8; stroke: #ab7df8 } .s5 { fill: #db61a2; stroke: #db61a2 }
  }
"""


class Picture:
    def __init__(self, height, title, subtitle):
        self.height = height
        self.parts = [f'<rect class="back" width="{WIDTH}" height="{height}"/>']
        self.text(16, 24, title, size=15, weight="bold")
        self.text(16, 42, subtitle, "faint")

    def text(self, x, y, words, kind="text", anchor="start", size=12, weight="normal"):
        self.parts.append(f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}">{escape(words)}</text>')

    def line(self, x1, y1, x2, y2, kind="grid"):
        self.parts.append(f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>')

    def dot(self, x, y, kind, note):
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="3.6"><title>{escape(note)}</title></circle>')

    def svg(self):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.height}" font-family="system-ui, sans-serif">\n'
                f"<style>{STYLE}</style>\n" + "\n".join(self.parts) + "\n</svg>\n")


def spread(wanted, room):
    """Heights near those wanted, `room` apart at least, in their order."""
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    placed, last = [0.0] * len(wanted), -math.inf
    for i in order:
        placed[i] = last = max(wanted[i], last + room)
    return placed


def share_by_width(lines, title, subtitle):
    """`lines`: {name: [(width, share)]}. Width on a logarithmic axis, share from 0 to 120 %."""
    height, bottom = 400, 350
    picture = Picture(height, title, subtitle)
    widths = sorted({w for points in lines.values() for w, _share in points})
    low, high = math.log2(widths[0]), math.log2(max(widths[-1], widths[0] * 2))
    across = lambda w: 60 + (math.log2(w) - low) / (high - low) * (WIDTH - RIGHT - 60)
    down = lambda share: bottom - min(share, 1.2) / 1.2 * (bottom - TOP - 10)
    for percent in range(0, 121, 20):
        picture.line(60, down(percent / 100), WIDTH - RIGHT, down(percent / 100), "even" if percent == 100 else "grid")
        picture.text(52, down(percent / 100) + 4, f"{percent} %", "faint", "end")
    for w in range(math.ceil(low), math.floor(high) + 1):
        picture.text(across(2**w), bottom + 18, f"{2**w}" if w < 10 else f"{2**w >> 10}Ki", "faint", "middle")
    picture.text((60 + WIDTH - RIGHT) / 2, bottom + 38, "elements of a row", "faint", "middle")
    names = spread([down(points[-1][1]) for points in lines.values()], 16)
    for kind, (name, points), at in zip(SERIES, lines.items(), names):
        picture.parts.append(f'<polyline class="{kind}" points="' + " ".join(f"{across(w):.1f},{down(s):.1f}" for w, s in points) + '"/>')
        for w, s in points:
            picture.dot(across(w), down(s), kind, f"{name}, rows of {w}: {100 * s:.0f} %")
        picture.text(WIDTH - RIGHT + 10, at + 4, name, f"{kind} label")
    return picture.svg()


def ratios(rows, title, subtitle):
    """`rows`: [(operator, [(ratio, note)])], one line each; right of the dashed line Tenor is the faster one."""
    bottom = TOP + 20 * len(rows)
    picture = Picture(bottom + 50, title, subtitle)
    every = [r for _name, points in rows for r, _note in points]
    low, high = min(-1, math.floor(math.log2(min(every)))), max(1, math.ceil(math.log2(max(every))))
    across = lambda r: LEFT + (math.log2(r) - low) / (high - low) * (WIDTH - LEFT - 30)
    for power in range(low, high + 1):
        picture.line(across(2.0**power), TOP, across(2.0**power), bottom, "even" if power == 0 else "grid")
        picture.text(across(2.0**power), bottom + 18, f"{2.0**power:g}x", "faint", "middle")
    picture.text(across(1), bottom + 36, "as fast as the peer", "faint", "middle")
    for i, (name, points) in enumerate(rows):
        y = TOP + 20 * i + 10
        picture.text(LEFT - 12, y + 4, name, anchor="end")
        for ratio, note in points:
            picture.dot(across(ratio), y, "s1" if ratio >= 1 else "s2", note)
    return picture.svg()
