"""The roofline of an Explanation as SVG: FLOPs a byte against FLOPs a second, each step and each fused kernel a labelled point."""
import math
from html import escape

from tenor import _tenor

WIDTH, HEIGHT = 900, 540
LEFT, RIGHT, TOP, BOTTOM = 74, 24, 64, 92
LETTER, LINE = 6.7, 15  # of a label, in pixels
CLASSES = {2: "elementwise", 3: "reduction, scan, sort", 4: "index", 5: "contraction"}
STYLE = """
  .back { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } .grid { stroke: #d8dee4; stroke-width: 1 }
  .roof { stroke: #1f2328; stroke-width: 2; fill: none } .other { stroke: #59636e; stroke-width: 1.5; stroke-dasharray: 5 4; fill: none }
  .leader { stroke: #59636e; stroke-width: 0.8 } .ring { fill: none; stroke: #1f2328; stroke-width: 1.6 }
  .c2 { fill: #0969da } .c3 { fill: #bc4c00 } .c4 { fill: #1a7f37 } .c5 { fill: #8250df }
  .around { fill: none !important; stroke-width: 2.5 }
  .c2.around { stroke: #0969da } .c3.around { stroke: #bc4c00 } .c4.around { stroke: #1a7f37 } .c5.around { stroke: #8250df }
  @media (prefers-color-scheme: dark) {
    .back { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d }
    .roof, .ring { stroke: #e6edf3 } .other, .leader { stroke: #9198a1 }
    .c2 { fill: #4493f8 } .c3 { fill: #f0883e } .c4 { fill: #3fb950 } .c5 { fill: #ab7df8 }
    .c2.around { stroke: #4493f8 } .c3.around { stroke: #f0883e } .c4.around { stroke: #3fb950 } .c5.around { stroke: #ab7df8 }
  }
"""


class Point:
    def __init__(self, flops, moved, us, kind, label):
        self.intensity, self.rate, self.kind, self.labels = flops / moved, flops / (us * 1e-6), kind, [label]


def points_of(e):
    """Steps with FLOPs, at their measured rate or else their floor's, and kernels of several steps. Those at one place share a
    point."""
    found = []
    for i, s in enumerate(e.steps):
        moved, us = s.bytes_read + s.bytes_written, s.time_us or s.floor_us
        if s.flops and moved and us:
            found.append(Point(s.flops, moved, us, s.op_class, f"{i} {s.op}"))
    for i, k in enumerate(e.kernels):
        flops, moved = sum(e.steps[s].flops for s in k.steps), k.bytes_read + k.bytes_written
        if k.strategy.startswith("fused") and flops and moved and k.floor_us:
            found.append(Point(flops, moved, k.floor_us, 0, f"kernel {i}"))
    merged = []
    for p in found:
        near = next((q for q in merged if q.kind == p.kind and abs(math.log(q.intensity / p.intensity)) < 0.05 and
                     abs(math.log(q.rate / p.rate)) < 0.05), None)
        if near:
            near.labels += p.labels
        else:
            merged.append(p)
    return merged


def label_of(p):
    shown = ", ".join(p.labels[:3])
    if p.kind == 0 and len(p.labels) > 1:
        shown = "kernels " + shown.replace("kernel ", "")
    return shown if len(p.labels) <= 3 else f"{shown}, {len(p.labels) - 3} more"


def power(value, unit):
    """1 G, 10 G: a power of ten with its prefix."""
    for factor, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= factor * 0.999:
            return f"{value / factor:.3g} {prefix}{unit}"
    return f"{value:.3g} {unit}".rstrip()


def fitted(s, size=12):
    """The text, or as much of it as the picture is wide."""
    most = int((WIDTH - LEFT - RIGHT) / (LETTER * size / 12))
    return s if len(s) <= most else s[:most - 3] + "..."


class Chart:
    def __init__(self, e):
        self.e = e
        self.points = points_of(e)
        limits = {limit.name: limit.value for limit in e.limits}
        rate, self.vector, self.matrix = (limits[name] for name in ("memory copy", "float32", "16-bit products"))
        used = [(s.bytes_read + s.bytes_written) / (s.floor_us * 1e-6) for s in e.steps if s.floor_us]
        self.memory, self.caches = rate, max(used, default=0)  # of data in the caches, where the steps' data is
        self.parts = []
        self.taken = []  # boxes of labels and points
        self.ranges()

    def ranges(self):
        xs = [p.intensity for p in self.points] + [self.vector / self.memory]
        if any(p.kind == 5 for p in self.points):
            xs.append(self.matrix / self.memory)
        low, high = math.floor(math.log10(min(xs)) - 0.3), math.ceil(math.log10(max(xs)) + 0.3)
        self.x = (low, high)
        ys = [p.rate for p in self.points] + [self.matrix, self.vector, self.memory * 10 ** low * 3]
        self.y = (math.floor(math.log10(min(ys)) - 0.1), math.ceil(math.log10(max(ys)) + 0.1))

    def at(self, intensity, rate):
        u = (math.log10(intensity) - self.x[0]) / (self.x[1] - self.x[0])
        v = (math.log10(rate) - self.y[0]) / (self.y[1] - self.y[0])
        return LEFT + u * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - v * (HEIGHT - TOP - BOTTOM)

    def text(self, x, y, s, cls="text", anchor="start", size=12):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{cls}" text-anchor="{anchor}" font-size="{size}">{escape(s)}</text>')

    def line(self, a, b, cls):
        self.parts.append(f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" class="{cls}"/>')

    def axes(self):
        for k in range(self.x[0], self.x[1] + 1):
            x, y = self.at(10.0 ** k, 10.0 ** self.y[0])
            self.line((x, TOP), (x, y), "grid")
            self.text(x, y + 18, f"{10.0 ** k:g}", "faint", "middle")
        for k in range(self.y[0], self.y[1] + 1):
            x, y = self.at(10.0 ** self.x[0], 10.0 ** k)
            self.line((x, y), (WIDTH - RIGHT, y), "grid")
            self.text(x - 8, y + 4, power(10.0 ** k, ""), "faint", "end")
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 38, "FLOPs a byte", "text", "middle", 13)
        self.parts.append(f'<text transform="translate(18 {(TOP + HEIGHT - BOTTOM) / 2:.0f}) rotate(-90)" class="text" text-anchor="middle" '
                          'font-size="13">FLOPs a second</text>')

    def roof(self, peak, memory, cls, name):
        """Rises with the memory's rate up to the peak."""
        low, high = 10.0 ** self.x[0], 10.0 ** self.x[1]
        start = max(low, 10.0 ** self.y[0] / memory)
        ridge = min(max(peak / memory, start), high)
        corners = [self.at(start, start * memory), self.at(ridge, min(peak, ridge * memory)), self.at(high, min(peak, high * memory))]
        self.parts.append(f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in corners)}" class="{cls}"/>')
        if name:
            x, y = corners[-1]
            self.place(name, x - LETTER * len(name) - 4, y - 6, "faint")

    def slope(self, memory, name, decades, aside):
        """Names a memory's rate beside where it rises, so many decades of the roof's start on; `aside` to the right of it, or left."""
        start = max(10.0 ** self.x[0] * 10 ** decades, 10.0 ** self.y[0] * 10 ** (decades + 0.2) / memory)
        start = min(start, 0.6 * self.vector / memory)  # it rises no further
        x, y = self.at(start, start * memory)
        below = aside > 0
        self.place(name, x + 14 if below else x - 12 - LETTER * len(name), y + 8 if below else y - 12, "faint")

    def roofs(self):
        unit = "FLOP/s"
        if any(p.kind == 5 for p in self.points) and self.matrix > 1.05 * self.vector:
            self.roof(self.matrix, self.memory, "other", f"16-bit contractions, {power(self.matrix, unit)}")
        self.roof(self.vector, self.memory, "roof", f"float32, {power(self.vector, unit)}")
        if self.caches > 1.2 * self.memory:
            self.roof(self.vector, self.caches, "other", None)
            self.slope(self.caches, f"memory within the caches, {power(self.caches, 'B/s')}", 1.6, -1)
        self.slope(self.memory, f"memory, {power(self.memory, 'B/s')}", 0.3, 1)

    def free(self, box):
        inside = box[0] >= LEFT - 2 and box[2] <= WIDTH - 2 and box[1] >= TOP - 14 and box[3] <= HEIGHT - BOTTOM
        return inside and all(box[2] <= b[0] or box[0] >= b[2] or box[3] <= b[1] or box[1] >= b[3] for b in self.taken)

    def place(self, s, x, y, cls, anchor=None):
        """The text at (x, y), or at the nearest free place around it, with a line to `anchor` where that is far."""
        width = LETTER * len(s)
        for shift in sorted(((dx, dy) for dx in range(-720, 721, 24) for dy in range(-330, 331, LINE)), key=lambda d: d[0] ** 2 + 3 * d[1] ** 2):
            left, base = x + shift[0], y + shift[1]
            box = (left - 2, base - 11, left + width, base + 4)
            if self.free(box):
                break
        else:  # a picture without a free place: the last one, rather than none
            left, base = x, y
            box = (left - 2, base - 11, left + width, base + 4)
        self.taken.append(box)
        if anchor and shift != (0, 0):
            self.line(anchor, (min(max(anchor[0], box[0]), box[2]), base - 4 if base < anchor[1] else base - 8), "leader")
        self.text(left, base, s, cls)

    def marks(self):
        places = [(p, *self.at(p.intensity, p.rate)) for p in self.points]
        self.taken += [(x - 6, y - 6, x + 6, y + 6) for _, x, y in places]
        drawn = []
        for p, x, y in sorted(places, key=lambda place: (place[0].kind == 0, place[2])):
            inside = sum(abs(x - u) < 8 and abs(y - v) < 8 for u, v in drawn)  # at one place: rings around the first
            drawn.append((x, y))
            radius, shape = 5 + 4 * inside, f"c{p.kind}" if not inside else f"c{p.kind} around"
            if not p.kind:
                radius, shape = max(radius, 9), "ring"
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" class="{shape}"/>')
            self.place(label_of(p), x + radius + 7, y + 4, "text", (x, y))

    def legend(self):
        x, y = LEFT, HEIGHT - 14
        for kind, name in CLASSES.items():
            self.parts.append(f'<circle cx="{x + 5}" cy="{y - 4}" r="5" class="c{kind}"/>')
            self.text(x + 15, y, name)
            x += 15 + LETTER * len(name) + 20
        self.parts.append(f'<circle cx="{x + 7}" cy="{y - 4}" r="6" class="ring"/>')
        self.text(x + 19, y, "a fused kernel")
        still = [f"{i} {s.op}" for i, s in enumerate(self.e.steps) if not s.flops and not s.view]
        if still:
            shown = ", ".join(still)
            shown = shown if len(shown) < 110 else shown[:107] + "..."
            self.text(LEFT, y - 22, f"without FLOPs: {shown}", "faint")

    def write(self):
        title = "; ".join(" ".join(line.split()) for line in getattr(self.e, "expression", "").splitlines() if line.strip())
        how = "as measured" if any(s.time_us for s in self.e.steps) else "at the floor of each step"
        self.text(LEFT, 24, fitted(title, 14), "text", size=14)
        self.text(LEFT, 43, fitted(f"{how} on {self.e.device}: {self.e.device_source}"), "faint")
        self.axes()
        self.roofs()
        self.marks()
        self.legend()
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
                f'font-family="system-ui, sans-serif">\n<title>Roofline of {escape(fitted(title))}</title>\n<style>{STYLE}</style>\n'
                f'<rect width="{WIDTH}" height="{HEIGHT}" class="back"/>\n{body}\n</svg>\n')


def roofline(e):
    return Chart(e).write()
