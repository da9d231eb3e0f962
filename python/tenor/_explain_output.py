"""An Explanation as JSON, SVG and HTML."""

STEP = ("op", "op_class", "shape", "dtype", "view", "bytes_read", "bytes_written", "flops", "bound", "floor_us", "time_us", "share", "note", "source")
KERNEL = ("steps", "bytes_read", "bytes_written", "floor_us", "predicted_us", "strategy", "declined")
ROWS = {"steps": STEP, "kernels": KERNEL, "cuts": ("before", "after", "reason"), "copies": ("step", "bytes", "reason"),
        "promotions": ("step", "dtypes", "to"), "limits": ("name", "value", "unit", "source")}
PLAIN = ("intermediates", "flops", "bytes_needed", "bytes_moved", "device", "device_source", "remarks")


def _plain(value):
    return list(value) if isinstance(value, tuple) else value


def to_dict(e):
    out = {name: [{f: _plain(getattr(row, f)) for f in fields} for row in getattr(e, name)] for name, fields in ROWS.items()}
    out.update({name: _plain(getattr(e, name, [])) for name in PLAIN})
    out["expression"] = getattr(e, "expression", "")
    out["inputs"] = getattr(e, "inputs", {})
    return out


def to_json(e, indent=2):
    import json
    return json.dumps(to_dict(e), indent=indent)


def to_svg(e, path=None):
    from tenor import _explain_svg
    svg = _explain_svg.roofline(e)
    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(svg)
    return svg


def _repr_html_(e):
    import html
    from tenor import _explain, _explain_svg
    text = html.escape(_explain.heading(e) + e.to_text(100, False))
    return f'<pre style="line-height:1.25">{text}</pre>\n{_explain_svg.roofline(e)}'
