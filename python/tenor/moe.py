"""Mixture of experts: which experts each token goes to, tokens dealt to them, the experts' products, and their weighted sum.

    plan = moe.route(logits, top_k)
    tokens = plan.dispatch(x)
    out = tokens.combine(experts.forward_dispatched(tokens))        # or experts.forward(x, logits, top_k)

The classes' methods are also functions of this module: moe.forward(experts, x, logits, top_k).
"""
from tenor._tenor import _moe_grouped_matmul as grouped_matmul
from tenor._tenor import _moe_route as route
from tenor._tenor import _moe_route_sigmoid_grouped as route_sigmoid_grouped
from tenor._tenor import _MoeDispatchedTokens as DispatchedTokens
from tenor._tenor import _MoeRoutingPlan as RoutingPlan
from tenor._tenor import _MoeSwiGluExperts as SwiGluExperts

__all__ = ["DispatchedTokens", "RoutingPlan", "SwiGluExperts", "combine", "dispatch", "forward", "forward_dispatched", "forward_routed",
           "forward_sigmoid_grouped", "grouped_matmul", "route", "route_sigmoid_grouped"]

for _name, _type in (("DispatchedTokens", DispatchedTokens), ("RoutingPlan", RoutingPlan), ("SwiGluExperts", SwiGluExperts)):
    _type.__name__ = _type.__qualname__ = _name
    _type.__module__ = "tenor.moe"

dispatch, combine = RoutingPlan.dispatch, DispatchedTokens.combine
forward, forward_sigmoid_grouped = SwiGluExperts.forward, SwiGluExperts.forward_sigmoid_grouped
forward_routed, forward_dispatched = SwiGluExperts.forward_routed, SwiGluExperts.forward_dispatched
