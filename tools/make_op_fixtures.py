"""Makes crates/kernels/tests/fixtures/ops.json: small inputs and outputs of the operations, computed by others.

    pip install torch==2.11.0 transformers==5.24.0
    python tools/make_op_fixtures.py crates/kernels/tests/fixtures/ops.json

The outputs come from the functions and modules of transformers (float32, CPU, eager), so that a formula that is wrong in
both a kernel and its reference shows. Inputs are random, rounded to three decimals.
"""

import json
import pathlib
import sys

import torch
from torch import nn
from transformers.models.deepseek_v3.configuration_deepseek_v3 import DeepseekV3Config
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3TopkRouter
from transformers.models.qwen4_exp import modeling_qwen4_exp as qwen
from transformers.models.qwen4_exp.configuration_qwen4_exp import Qwen4ExpTextConfig

CASES = {}


def rand(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).mul(1000).round() / 1000


def case(name, **tensors):
    def entry(t):
        if not torch.is_tensor(t):
            return t
        if t.dtype.is_floating_point:
            return {"shape": list(t.shape), "data": [float(str(x)) for x in t.detach().flatten().numpy()]}
        return {"shape": list(t.shape), "data": t.flatten().tolist()}

    CASES[name] = {key: entry(t) for key, t in tensors.items()}


def randomise(module):
    """Replaces all parameters by random ones."""
    with torch.no_grad():
        for p in module.parameters():
            p.copy_(rand(*p.shape, scale=0.5))
    return module


def norms():
    x, gate = rand(3, 2, 8), rand(3, 2, 8, scale=3)
    norm = randomise(qwen.Qwen4ExpTextRMSNorm(16, group_size=8, eps=1e-6))
    out = norm(x.flatten(1)).view_as(x)
    case("rms_norm", x=x, weight=(1 + norm.weight).view(1, 2, 8), out=out)
    for activation in ("silu", "sigmoid"):
        norm = randomise(qwen.Qwen4ExpTextRMSNormGated(8, eps=1e-6, activation=activation))
        case(f"gated_norm_{activation}", x=x, gate=gate, weight=norm.weight.view(1, 1, 8), out=norm(x, gate))


def config(**kwargs):
    base = dict(
        hidden_size=16,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=8,
        num_experts_per_tok=3,
        norm_topk_prob=True,
        moe_intermediate_size=4,
        shared_expert_intermediate_size=6,
        hc_count=4,
        hc_lowrank=5,
        ngram_size=3,
        ple_conv_kernel_size=4,
        ple_embed_dim=12,
        rms_norm_eps=1e-6,
        num_hidden_layers=2,
        vocab_size=64,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )
    return Qwen4ExpTextConfig(**{**base, **kwargs})


def rotary(c, positions):
    return qwen.Qwen4ExpTextRotaryEmbedding(c)(torch.zeros(1), positions[None])


def rope():
    # The largest position at which float32 still tells neighbours apart by their angle.
    c = config()
    x, positions = rand(4, 3, 8), torch.tensor([0, 1, 1000, 131071])
    cos, sin = rotary(c, positions)
    out = qwen.apply_rotary_pos_emb(x[None], cos=cos, sin=sin, unsqueeze_dim=2)[0]
    case("rope", x=x, positions=positions, freqs=qwen.Qwen4ExpTextRotaryEmbedding(c).inv_freq.view(1, 1, -1), out=out)


class Shared(nn.Module):
    num_key_value_groups = 2
    training = False


def attention():
    # Queries at positions 5..8 of 9 keys.
    q, k, v, gate = rand(4, 4, 8, scale=2), rand(9, 2, 8), rand(9, 2, 8), rand(4, 4, 8, scale=2)
    # Blocks of 2: of 3, 3, 4, 4 complete ones two are selected, and the incomplete one is visible.
    blocks = torch.tensor([[0, 2], [1, 2], [0, 3], [1, 3]])
    causal, selected = torch.full((4, 9), -torch.inf), torch.full((4, 9), -torch.inf)
    for t in range(4):
        p = 5 + t
        causal[t, : p + 1] = 0
        for b in blocks[t]:
            selected[t, 2 * b : 2 * b + 2] = 0
        selected[t, (p + 1) // 2 * 2 : p + 1] = 0
    heads = [x.transpose(0, 1)[None] for x in (q, k, v)]
    for name, mask in (("attention", causal), ("attention_selected", selected)):
        out, _ = qwen.eager_attention_forward(Shared(), *heads, mask, scaling=8**-0.5)
        case(name, q=q, k=k, v=v, gate=gate, blocks=blocks.view(4, 1, 2), out=out[0] * torch.sigmoid(gate))


def indexer():
    # The projection is the identity: queries and keys are the input.
    c = config(
        hidden_size=24,
        indexer_n_heads=2,
        indexer_kv_heads=1,
        indexer_head_dim=8,
        indexer_budget=6,
        indexer_compress_ratio=3,
    )
    module = randomise(qwen.Qwen4ExpTextQSAIndexer(c, 0))
    with torch.no_grad():
        module.index_qk_proj.weight.copy_(torch.eye(24))
    tokens = 20
    x = rand(tokens, 24)
    mask = torch.ones(1, 1, tokens, tokens, dtype=torch.bool).tril()
    visible = module(x[None], rotary(c, torch.arange(tokens)), mask, None)[0, 0]
    case(
        "indexer",
        x=x.view(tokens, 1, 24),
        q_norm=(1 + module.q_layernorm.weight).view(1, 1, 8),
        k_norm=(1 + module.k_layernorm.weight).view(1, 1, 8),
        freqs=qwen.Qwen4ExpTextRotaryEmbedding(c).inv_freq.view(1, 1, -1),
        visible=(visible & mask[0, 0]).int(),
    )


def conv():
    x, weight, state = rand(7, 6), rand(6, 4), rand(3, 6)
    whole = torch.cat([state, x])
    out = qwen.causal_conv1d_fn(whole.T[None], weight, activation="silu")[0].T[3:]
    case("conv", x=x[:, None], weight=weight[:, None], state=state[:, None], out=out[:, None], state_out=whole[-3:][:, None])


def delta_net():
    # Two key heads, four value heads, each key head serving two neighbours ("grouped").
    tokens, hk, hv, ck, cv = 6, 2, 4, 8, 5
    q, k, v = rand(tokens, hk, ck), rand(tokens, hk, ck), rand(tokens, hv, cv)
    alpha, beta, dt_bias, a_log = rand(tokens, hv), rand(tokens, hv), rand(hv), rand(hv)
    a = -a_log.exp()
    g = a * nn.functional.softplus(alpha + dt_bias)
    state = rand(hv, ck, cv)
    out, state_out = qwen.torch_recurrent_gated_delta_rule(
        q[None], k[None], v[None], g=g[None], beta=beta.sigmoid()[None], initial_state=state[None],
        output_final_state=True, use_qk_l2norm_in_kernel=True,
    )
    case(
        "delta_net", q=q, k=k, v=v, alpha=alpha[:, None], beta=beta[:, None], a=a.view(1, 1, hv),
        dt_bias=dt_bias.view(1, 1, hv), state=state, out=out[0], state_out=state_out[0],
    )


def hyper_connection():
    c = config()
    module = randomise(qwen.Qwen4ExpTextGatedResidual(c))
    x, y = rand(3, 4, 16), rand(3, 16)
    mixed, _, inject = module(x.flatten(1))
    written = x + y[:, None] * inject[..., None]
    case(
        "hyper_connection", x=x, y=y[:, None], norm=(1 + module.hc_norm.weight).view(1, 4, 16),
        down=module.input_mix_weight_down.weight, up=module.input_mix_weight_up.weight,
        inject=module.block_inject_weight.weight, mixed=mixed[:, None], written=written,
    )


def ple():
    # The embedding itself is integer work of the model; here it is an input.
    c = config()
    module = qwen.Qwen4ExpTextPLELayer.__new__(qwen.Qwen4ExpTextPLELayer)
    nn.Module.__init__(module)
    embeddings = rand(7, 12)
    norm = lambda: qwen.Qwen4ExpTextRMSNorm(64, group_size=16, eps=1e-6)
    module.layer_idx, module.hidden_size, module.hc_count, module.short_conv_state_len = 0, 16, 4, 9
    module.key_proj, module.value_proj = nn.Linear(12, 64, bias=False), nn.Linear(12, 16, bias=False)
    module.norm_key, module.norm_query, module.norm_conv = norm(), norm(), norm()
    module.conv1d = nn.Conv1d(64, 64, kernel_size=4, groups=64, dilation=3, bias=False)
    randomise(module)
    module.ple_embedding = lambda ids, cache: embeddings[None]
    x = rand(7, 4, 16)
    out = module(x.flatten(1)[None], None, None)[0].view(7, 4, 16)
    weights = {name: (1 + getattr(module, name).weight).view(1, 4, 16) for name in ("norm_key", "norm_query", "norm_conv")}
    case(
        "ple", x=x, embeddings=embeddings[:, None], key=module.key_proj.weight, value=module.value_proj.weight,
        conv=module.conv1d.weight, out=out, **weights,
    )


def moe():
    c = config()
    module = randomise(qwen.Qwen4ExpTextSparseMoeBlock(c))
    x = rand(9, 16)
    _, weights, ids = module.gate(x)
    gate, up = module.experts.gate_up_proj.chunk(2, dim=1)
    case(
        "moe", x=x[:, None], router=module.gate.weight, gate=gate, up=up, down=module.experts.down_proj,
        shared_gate=module.shared_expert.gate_proj.weight, shared_up=module.shared_expert.up_proj.weight,
        shared_down=module.shared_expert.down_proj.weight, shared_logit=module.shared_expert_gate.weight,
        ids=ids[:, None], weights=weights[:, None], out=module(x[None])[0][:, None],
    )


def grouped_router():
    # Sigmoid scores, a bias for the selection, two of four groups, renormalised and scaled. The input is the logits.
    c = DeepseekV3Config(
        hidden_size=12, n_routed_experts=12, num_experts_per_tok=3, n_group=4, topk_group=2, norm_topk_prob=True,
        routed_scaling_factor=2.5,
    )
    module = DeepseekV3TopkRouter(c)
    bias, logits = rand(12, scale=0.3), rand(10, 12, scale=2)
    module.weight.copy_(torch.eye(12))
    module.e_score_correction_bias.copy_(bias)
    _, weights, ids = module(logits)
    # Its ids are not sorted; ours are by selection score.
    order = (logits.sigmoid() + bias).gather(1, ids).argsort(dim=1, descending=True)
    ids, weights = ids.gather(1, order), weights.gather(1, order)
    case("grouped_router", logits=logits[:, None], bias=bias.view(1, 1, 12), ids=ids[:, None], weights=weights[:, None])


if __name__ == "__main__":
    torch.manual_seed(1)
    with torch.no_grad():
        for make in (norms, rope, attention, indexer, conv, delta_net, hyper_connection, ple, moe, grouped_router):
            make()
    lines = [f"{json.dumps(name)}: {json.dumps(tensors, separators=(',', ':'))}" for name, tensors in CASES.items()]
    pathlib.Path(sys.argv[1]).write_text("{\n" + ",\n".join(lines) + "\n}\n")
