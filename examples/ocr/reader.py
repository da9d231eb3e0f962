"""PP-OCR in Tenor's operators: a network that finds lines of text in an image, and one that reads a line.

Models: PP-OCRv6 small, detection and recognition (PaddleOCR, Apache-2.0), whose ONNX files the Python package rapidocr bundles;
of that package nothing is imported.
"""
import glob
import importlib.util
import os

import numpy as np

import tenor as tn
from graph import Graph

HEIGHT = 48  # of a line that is read
MULTIPLE = 32  # of the sides of an image that is searched


def find_model(kind):
    """The path of the bundled "det" or "rec" network. FileNotFoundError says what to install."""
    package = importlib.util.find_spec("rapidocr")
    found = package and sorted(glob.glob(os.path.join(package.submodule_search_locations[0], "models", f"PP-OCR*_{kind}_*.onnx")))
    if not found:
        raise FileNotFoundError("the models are not installed: pip install --no-deps rapidocr, or name a folder with --models")
    return found[-1]


def pixels(image, size, device):
    """An image [H, W, 3] (RGB, uint8) as the networks take it: [1, 3, *size], BGR, -1 to 1."""
    x = tn.asarray(np.ascontiguousarray(image[..., ::-1]), device=device).to(tn.float32)
    x = tn.unsqueeze(x.permute(2, 0, 1), 0).contiguous()
    x = tn.interpolate(x, size=size, mode="bilinear", antialias=True)
    return tn.sub(tn.mul(x, 2 / 255), 1.0)


class Recognizer:
    """recognize(lines) -> [(text, confidence)] of images of one line each."""

    def __init__(self, path=None, device="cpu"):
        self.graph, self.device = Graph(path or find_model("rec"), device), device
        # Class 0 is the blank; the space has no line of its own in the list.
        self.characters = ["", *self.graph.metadata["character"].splitlines(), " "]

    def batch(self, lines):
        """[N, 3, 48, W]: every line scaled to that height, zeros behind the shorter ones."""
        widths = [max(int(np.ceil(HEIGHT * line.shape[1] / line.shape[0])), 8) for line in lines]
        most = -(-max(widths) // 8) * 8
        rows = [tn.pad(pixels(line, (HEIGHT, w), self.device), (0, most - w)) for line, w in zip(lines, widths)]
        return tn.cat(rows, 0)

    def probabilities(self, batch):
        """[N, T, C]: of each class in each of T columns."""
        return self.graph(batch)

    def decode(self, probabilities):
        """The best class of each column, repeats merged, blanks dropped. The confidence is the mean of the columns that show a letter."""
        ids, lengths = tn.ctc_greedy_decode(probabilities.permute(1, 0, 2))  # their order is that of their logarithms
        shown = tn.ne(tn.argmax(probabilities, -1), 0).to(tn.float32)
        sure = tn.div(tn.sum(tn.mul(tn.amax(probabilities, -1), shown), -1), tn.maximum(tn.sum(shown, -1), 1.0))
        texts = ["".join(self.characters[k] for k in row[:n]) for row, n in zip(ids.tolist(), lengths.tolist())]
        return list(zip(texts, sure.tolist()))

    def __call__(self, lines):
        return self.decode(self.probabilities(self.batch(lines))) if lines else []


class Detector:
    """detect(image) -> boxes (left, top, right, bottom) of the lines of upright text, top to bottom."""

    def __init__(self, path=None, device="cpu", threshold=0.3, least=0.5, grow=1.6):
        self.graph, self.device = Graph(path or find_model("det"), device), device
        self.threshold, self.least, self.grow = threshold, least, grow

    def batch(self, image):
        """[1, 3, H, W] with sides that are multiples of 32, the shorter one at least 736 but the longer at most 2000."""
        height, width = image.shape[:2]
        scale = min(max(736 / min(height, width), 1), 2000 / max(height, width))
        return pixels(image, tuple(max(round(side * scale / MULTIPLE), 1) * MULTIPLE for side in (height, width)), self.device)

    def map(self, batch):
        """[H, W]: how sure it is that a place lies within the core of a line."""
        return self.graph(batch)[0, 0].numpy()

    def boxes(self, found, image):
        scale = np.array([image.shape[1] / found.shape[1], image.shape[0] / found.shape[0]] * 2)
        boxes = []
        for left, top, right, bottom in regions(found > self.threshold):
            if min(right - left, bottom - top) < 3 or found[top:bottom, left:right].mean() < self.least:
                continue
            by = (right - left) * (bottom - top) * self.grow / (2 * (right - left + bottom - top))  # the map shows a line's core
            box = np.array([left - by, top - by, right + by, bottom + by]) * scale
            boxes.append(tuple(int(v) for v in np.clip(np.round(box), 0, [image.shape[1], image.shape[0]] * 2)))
        return sorted(boxes, key=lambda b: (b[1] + b[3], b[0]))

    def __call__(self, image):
        return self.boxes(self.map(self.batch(image)), image)


def regions(mask):
    """The bounding boxes of the connected parts of a mask: runs of each row, joined with those that they touch in the row above."""
    parent, boxes, above = [], [], []

    def root(i):
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    for y, row in enumerate(mask):
        edges = np.flatnonzero(np.diff(np.concatenate(([0], row.astype(np.int8), [0]))))
        runs = []
        for left, right in zip(edges[::2].tolist(), edges[1::2].tolist()):
            touching = {root(i) for a, b, i in above if a <= right and left <= b}
            mine = min(touching, default=len(parent))
            if mine == len(parent):
                parent.append(mine)
                boxes.append([left, y, right, y + 1])
            for i in touching | {mine}:
                parent[i] = mine
                old, other = boxes[mine], boxes[i]
                boxes[mine] = [min(old[0], other[0], left), min(old[1], other[1]), max(old[2], other[2], right), y + 1]
            runs.append((left, right, mine))
        above = runs
    return [tuple(box) for i, box in enumerate(boxes) if parent[i] == i]
