"""Attention over a paged cache: the keys and values of many sequences in pages of one pool, read where they lie.

    host = paged.HostPlan(page_size, pages, tables, lengths, sequence_ids, positions)
    plan = paged.DevicePlan.upload(host, like=q)
    key_cache, value_cache = plan.append(k, v, key_cache, value_cache)
    out = plan.attention(q, key_cache, value_cache)

The plan's methods are also functions of the plan: paged.attention(plan, q, k, v).
"""
from tenor._tenor import _PagedDevicePlan as DevicePlan
from tenor._tenor import _PagedHostPlan as HostPlan
from tenor._tenor import _PagedSplitWorkspace as SplitWorkspace
from tenor._tenor import _paged_copy_pages as copy_pages
from tenor._tenor import _paged_copy_pages_ as copy_pages_

__all__ = ["DevicePlan", "HostPlan", "SplitWorkspace", "append", "append_", "attention", "copy_pages", "copy_pages_", "mla"]

for _name, _type in (("DevicePlan", DevicePlan), ("HostPlan", HostPlan), ("SplitWorkspace", SplitWorkspace)):
    _type.__name__ = _type.__qualname__ = _name
    _type.__module__ = "tenor.paged"

attention, mla = DevicePlan.attention, DevicePlan.mla
append, append_ = DevicePlan.append, DevicePlan.append_
