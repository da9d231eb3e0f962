"""The files that `tenor run` reads and writes."""
import os

from tenor._cli.arguments import UsageError, nearest


def read(text, names=()):
    """The arrays of one file argument: a tensor, or a dict by parameter name.

    "x.npy"; "x.npz:key" for one array of several; "x.npz" alone where it holds one array, or arrays that are all named
    like the operator's parameters (`names`). UsageError for anything else; tenor.load refuses broken files.
    """
    import tenor

    path, key = _split(text)
    if not os.path.exists(path):
        raise UsageError(f"{path}: no such file{nearest(os.path.basename(path), _neighbours(path), 0.8)}")
    found = tenor.load(path)
    if not isinstance(found, dict):
        return found
    if key is not None:
        if key not in found:
            raise UsageError(f"{path} has no array {key!r}{nearest(key, found)}; it holds {_list(found)}")
        return found[key]
    if len(found) == 1:
        return next(iter(found.values()))
    if found and set(found) <= set(names):
        return found
    first = next(iter(found), "NAME")
    raise UsageError(f"{path} holds {_list(found)}: pick one as in {path}:{first}, or name them like the parameters {_list(names)}")


def _split(text):
    for suffix in (".npz:", ".safetensors:"):
        at = text.lower().find(suffix)
        if at >= 0 and not os.path.exists(text):
            return text[: at + len(suffix) - 1], text[at + len(suffix):]
    return text, None


def _neighbours(path):
    try:
        return sorted(os.listdir(os.path.dirname(path) or "."))[:10000]
    except OSError:
        return []


def _list(names, most=12):
    names = list(names)
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "") if names else "no arrays"


def check_outputs(paths):
    """Before anything is computed: whether the outputs can be what they are asked to be."""
    for path in paths:
        if os.path.splitext(path)[1].lower() not in (".npy", ".npz", ".safetensors"):
            raise UsageError(f"-o {path}: the name must end in .npy, .npz or .safetensors")
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise UsageError(f"-o {path}: there is no folder {folder}")
        if os.path.isdir(path) or not os.access(folder, os.W_OK):
            raise UsageError(f"-o {path}: it cannot be written there")


def write(results, paths):
    """Saves named results: a .npy file each, or all of them in one archive. The files written."""
    if len(paths) == 1 and not paths[0].lower().endswith(".npy"):
        _replace(dict(results), paths[0])
        return [paths[0]] * len(results)
    if len(paths) != len(results):
        names = _list(results)
        count = f"{len(results)} result{'s' * (len(results) != 1)} ({names})"
        mend = "give -o once for each, or one .npz or .safetensors file" if len(results) > 1 else "give -o once"
        raise UsageError(f"there are {count} and {len(paths)} output file{'s' * (len(paths) != 1)}: {mend}")
    for (name, value), path in zip(results.items(), paths):
        _replace(value if path.lower().endswith(".npy") else {name: value}, path)
    return list(paths)


def _replace(value, path):
    """Written beside the file, then renamed over it: a full disk leaves no half file, and the old one stays."""
    import tenor

    root, suffix = os.path.splitext(path)
    draft = f"{root}.{os.getpid()}.part{suffix}"
    try:
        tenor.save(value, draft)
        os.replace(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
