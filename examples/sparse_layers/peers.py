"""The same layers by the package transformers, with the same weights: what the example is compared with where that is installed."""
import re

import torch
from transformers import DeepseekV3Config, Qwen3NextConfig
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextModel


def expert_weight(weights, name):
    """Of one expert, as versions before 5 keep them, from the stacked ones."""
    prefix, e, part = re.fullmatch(r"(.*experts)\.(\d+)\.(gate|up|down)_proj\.weight", name).groups()
    if part == "down":
        return weights[prefix + ".down_proj"][int(e)]
    both = weights[prefix + ".gate_up_proj"][int(e)]
    return both[:len(both) // 2] if part == "gate" else both[len(both) // 2:]


def with_weights(module, weights, device):
    """The module on that device with all of its weights from NumPy arrays; KeyError or AttributeError for a name that is not there."""
    state = {name: torch.from_numpy((weights[name] if name in weights else expert_weight(weights, name)).copy()) for name in module.state_dict()}
    module.load_state_dict(state)
    return module.to(device).eval()


def qwen_pair(f, weights, device):
    """fn(x [B, T, hidden] NumPy) -> NumPy, the two layers of transformers without embedding and the last norm."""
    config = Qwen3NextConfig(
        vocab_size=8, hidden_size=f.hidden, num_hidden_layers=2, layer_types=["linear_attention", "full_attention"], num_attention_heads=f.heads,
        num_key_value_heads=f.kv_heads, head_dim=f.head_dim, partial_rotary_factor=f.rotary / f.head_dim, rope_theta=f.theta, rms_norm_eps=f.epsilon,
        linear_conv_kernel_dim=f.conv, linear_key_head_dim=f.delta_dim, linear_value_head_dim=f.delta_dim, linear_num_key_heads=f.delta_heads,
        linear_num_value_heads=f.delta_value_heads, moe_intermediate_size=f.inner, shared_expert_intermediate_size=f.shared_inner,
        num_experts=f.experts, num_experts_per_tok=f.top_k, norm_topk_prob=True, max_position_embeddings=f.positions, attn_implementation="eager")
    model = Qwen3NextModel(config)
    model.norm = torch.nn.Identity()
    del model.embed_tokens
    model = with_weights(model, weights, device)

    @torch.no_grad()
    def run(x):
        return model(inputs_embeds=torch.from_numpy(x).to(device), use_cache=False).last_hidden_state.cpu().numpy()
    return run


def deepseek_moe(f, weights, device):
    """fn(x [T, hidden] NumPy) -> NumPy."""
    config = DeepseekV3Config(
        hidden_size=f.hidden, moe_intermediate_size=f.inner, n_routed_experts=f.experts, num_experts_per_tok=f.top_k, n_group=f.groups,
        topk_group=f.selected_groups, n_shared_experts=f.shared_experts, norm_topk_prob=True, routed_scaling_factor=f.scale)
    module = with_weights(DeepseekV3MoE(config), weights, device)

    @torch.no_grad()
    def run(x):
        return module(torch.from_numpy(x).to(device)[None])[0].cpu().numpy()
    return run
