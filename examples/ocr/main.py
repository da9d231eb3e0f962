#!/usr/bin/env python3
"""Reads the text in an image with PP-OCR's networks, every operator Tenor's, and compares with onnxruntime where that is installed."""
import argparse
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FONTS = ("/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "DejaVuSans.ttf")
LINES = ["Tenor reads this line.", "The quick brown fox jumps over 13 lazy dogs", "Total: 1,234.56 EUR (incl. 19% VAT)",
         "https://example.org/a?b=c&d=42", "conv, norm, pool, attention, CTC"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("image", nargs="?", help="an image of upright text (default: one that is drawn here)")
    parser.add_argument("--models", help="folder with the detection and recognition networks (default: the installed package's)")
    parser.add_argument("--device", default="auto", help="cpu, cuda, or auto: a GPU where there is one (default: auto)")
    parser.add_argument("--threads", type=int, help="threads (default: OMP_NUM_THREADS, or all cores)")
    parser.add_argument("--lines", action="store_true", help="the image is one line: search no text in it")
    parser.add_argument("--check", action="store_true", help="fail unless the drawn text is read right, and as onnxruntime reads it")
    parser.add_argument("--demo", action="store_true", help="say so in one line, and succeed, where something is not installed")
    return parser.parse_args()


def draw(lines):
    """An image of those lines, RGB."""
    import numpy as np
    from PIL import Image, ImageDraw, ImageFont

    font = None
    for path in FONTS:
        try:
            font = font or ImageFont.truetype(path, 28)
        except OSError:
            pass
    font = font or ImageFont.load_default(28)
    image = Image.new("RGB", (760, 40 + 60 * len(lines)), "white")
    for i, text in enumerate(lines):
        ImageDraw.Draw(image).text((30, 30 + 60 * i), text, fill=(20, 20, 60), font=font)
    return np.asarray(image)


def without_margin(image, left=6):
    """The part of it that is not white, and a few pixels more."""
    import numpy as np

    ys, xs = np.nonzero((image < 128).any(-1))
    return image[max(ys.min() - left, 0) : ys.max() + left, max(xs.min() - left, 0) : xs.max() + left]


def best_time(run, seconds=0.5):
    """Milliseconds, the best of several runs."""
    times, end = [], time.perf_counter() + seconds
    while len(times) < 3 or time.perf_counter() < end:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


class Peer:
    """The same network in onnxruntime, on the CPU."""

    def __init__(self, path, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def __call__(self, x):
        return self.session.run(None, {self.session.get_inputs()[0].name: x})[0]


def compare(name, ours, batch, path, threads):
    """A line of both libraries' times and their largest difference, and the peer's result; None where there is no peer."""
    import numpy as np
    import tenor as tn

    result = ours(batch)
    mine = best_time(lambda: ours(batch).numpy())
    shape = "x".join(map(str, batch.shape))
    try:
        peer = Peer(path, threads)
    except ImportError:
        print(f"  {name:12}{shape:16}{mine:9.1f} ms   (onnxruntime is not installed, so nothing to compare with)")
        return None
    x = batch.numpy()
    theirs = peer(x)
    off = float(np.abs(result.numpy() - theirs).max())
    other = best_time(lambda: peer(x))
    print(f"  {name:12}{shape:16}{mine:9.1f} ms   onnxruntime on the CPU {other:8.1f} ms   largest difference {off:.1e}")
    return tn.asarray(theirs)


def main():
    args = parse()
    try:
        import numpy as np
        from PIL import Image

        import tenor as tn
        from reader import Detector, Recognizer, find_model

        paths = {kind: find_model(kind) if not args.models else newest(args.models, kind) for kind in ("det", "rec")}
    except (ImportError, FileNotFoundError) as error:
        print(f"ocr: {error}" + " (skipped)" * args.demo, file=sys.stdout if args.demo else sys.stderr)
        return 0 if args.demo else 2
    if args.threads:
        tn.set_num_threads(args.threads)
    device = args.device if args.device != "auto" else "cuda" if tn.cuda_device_count() else "cpu"
    drawn = LINES[:1] if args.lines else LINES
    try:
        image = np.asarray(Image.open(args.image).convert("RGB")) if args.image else draw(drawn)
        if args.lines and not args.image:
            image = without_margin(image)
    except OSError as error:
        print(f"ocr: {error}", file=sys.stderr)
        return 2
    detect, recognize = Detector(paths["det"], device), Recognizer(paths["rec"], device)
    boxes = [(0, 0, image.shape[1], image.shape[0])] if args.lines else detect(image)
    if not boxes:
        print("ocr: no text was found")
        return 1 if args.check else 0
    lines = [image[top:bottom, left:right] for left, top, right, bottom in boxes]
    batch = recognize.batch(lines)
    found = recognize.decode(recognize.probabilities(batch))
    print(f"{len(lines)} lines of text in an image of {image.shape[1]} x {image.shape[0]}, read on {device}:")
    for (text, sure), box in zip(found, boxes):
        print(f"  {100 * sure:3.0f} %  {text}")
    threads = tn.get_num_threads()
    if not args.lines:
        compare("detection", detect.graph, detect.batch(image), paths["det"], threads)
    theirs = compare("recognition", recognize.probabilities, batch, paths["rec"], threads)
    ok = True
    if theirs is not None:
        same = [a == b for (a, _), (b, _) in zip(found, recognize.decode(theirs))]
        ok = all(same)
        print(f"  the same text as onnxruntime's on {sum(same)} of {len(same)} lines")
    if args.check and not args.image:
        right = [text for text, _ in found] == drawn
        print("  the text that was drawn" if right else f"  not the text that was drawn: {drawn}")
        ok = ok and right
    return 1 if args.check and not ok else 0


def newest(folder, kind):
    import glob

    found = sorted(glob.glob(os.path.join(folder, f"*_{kind}_*.onnx")))
    if not found:
        raise FileNotFoundError(f"{folder} holds no *_{kind}_*.onnx")
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
