"""A qwen4exp language model for training, with the parameter names of transformers' Qwen4ExpForCausalLM.

The mathematics is transformers' (check_model.py compares the logits); the arrangement differs where training speed asks for it:
the delta rule is one kernel (gated_delta.py), every expert runs on every token with weight zero where it was not chosen (exact, and
faster than gathering at this size), and the selection of key blocks is done for all queries at once.

Axes: B sequences, T tokens, H hidden, S hyper-connection streams, E experts. The residual is [B, T, S * H] in f32.
"""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from gated_delta import gated_delta


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


class RMSNorm(nn.Module):
    """(1 + w) * x / rms(x), the root mean square taken over groups of `group` channels."""

    def __init__(self, width, group=None, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width))
        self.group, self.eps = group or width, eps

    def forward(self, x):
        shape = x.shape
        x = x.float().unflatten(-1, (-1, self.group))
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return x.reshape(shape) * (1 + self.weight)


class GatedRMSNorm(nn.Module):
    """w * x / rms(x) * sigmoid(gate)."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x, gate):
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * x * torch.sigmoid(gate.float())


class CausalConv(nn.Module):
    """Depthwise causal convolution over time, then SiLU, as shifted multiplies: [B, T, channels]."""

    def __init__(self, channels, taps, dilation=1):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(channels, 1, taps))
        self.taps, self.dilation = taps, dilation

    def forward(self, x):
        steps = x.shape[1]
        padded = F.pad(x, (0, 0, (self.taps - 1) * self.dilation, 0))
        out = 0
        for tap in range(self.taps):
            out = out + padded[:, tap * self.dilation: tap * self.dilation + steps] * self.weight[:, 0, tap]
        return F.silu(out)


def rotate(x, cos, sin):
    """Rotary position embedding of the first channels of x [B, T, heads, width]; cos, sin [T, rotated]."""
    rotated = cos.shape[-1]
    head, rest = x[..., :rotated], x[..., rotated:]
    turned = torch.cat((-head[..., rotated // 2:], head[..., :rotated // 2]), -1)
    return torch.cat((head * cos[:, None] + turned * sin[:, None], rest), -1)


class GatedDeltaNet(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden = c['hidden_size']
        self.key_heads, self.value_heads = c['linear_num_key_heads'], c['linear_num_value_heads']
        self.width = c['linear_key_head_dim']
        self.key_dim, self.value_dim = self.key_heads * self.width, self.value_heads * self.width
        self.conv1d = CausalConv(2 * self.key_dim + self.value_dim, c['linear_conv_kernel_dim'])
        self.dt_bias = nn.Parameter(torch.ones(self.value_heads))
        self.A_log = nn.Parameter(torch.zeros(self.value_heads))
        self.norm = GatedRMSNorm(self.width)
        self.in_proj_qkv = linear(hidden, 2 * self.key_dim + self.value_dim)
        self.in_proj_z = linear(hidden, self.value_dim)
        self.in_proj_b = linear(hidden, self.value_heads)
        self.in_proj_a = linear(hidden, self.value_heads)
        self.out_proj = linear(self.value_dim, hidden)

    def forward(self, x):
        batch, steps, _ = x.shape
        mixed = self.conv1d(self.in_proj_qkv(x).float())
        q, k, v = mixed.split([self.key_dim, self.key_dim, self.value_dim], -1)
        q, k = (y.reshape(batch, steps, self.key_heads, self.width) for y in (q, k))
        v = v.reshape(batch, steps, self.value_heads, self.width)
        q = q * torch.rsqrt((q * q).sum(-1, keepdim=True) + 1e-6) * self.width ** -0.5
        k = k * torch.rsqrt((k * k).sum(-1, keepdim=True) + 1e-6)
        beta = self.in_proj_b(x).float().sigmoid()
        decay = -self.A_log.exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias)
        out = gated_delta(q.contiguous(), k.contiguous(), v.contiguous(), decay.contiguous(), beta.contiguous())
        out = self.norm(out, self.in_proj_z(x).view(batch, steps, self.value_heads, self.width))
        return self.out_proj(out.reshape(batch, steps, -1))


class Indexer(nn.Module):
    """Scores of key blocks for every query; a block is `ratio` tokens in a row."""

    def __init__(self, c):
        super().__init__()
        self.heads, self.width = c['indexer_n_heads'], c['indexer_head_dim']
        self.ratio = c['indexer_compress_ratio']
        self.budget = c['indexer_budget'] // self.ratio
        self.index_qk_proj = linear(c['hidden_size'], (self.heads + 1) * self.width)
        self.q_layernorm, self.k_layernorm = RMSNorm(self.width), RMSNorm(self.width)

    def forward(self, x, cos, sin):
        """-> scores [B, T, blocks] and whether the block is complete at the query [T, blocks]."""
        batch, steps, _ = x.shape
        blocks, ratio = steps // self.ratio, self.ratio
        q, k = self.index_qk_proj(x).float().split([self.heads * self.width, self.width], -1)
        q = rotate(self.q_layernorm(q.reshape(batch, steps, self.heads, self.width)), cos, sin)
        k = self.k_layernorm(k[:, :blocks * ratio].reshape(batch, blocks, ratio, self.width).mean(2))
        k = rotate(k[:, :, None], cos[0:blocks * ratio:ratio], sin[0:blocks * ratio:ratio])[:, :, 0]
        scores = torch.relu(torch.einsum('bthd,bjd->bhtj', q, k)).sum(1) / math.sqrt(self.width)
        last = torch.arange(blocks, device=x.device) * ratio + ratio - 1
        return scores, last[None] <= torch.arange(steps, device=x.device)[:, None]


class SparseAttention(nn.Module):
    """Gated full attention over the key blocks that the indexer chose and the tokens after the last complete block."""

    def __init__(self, c):
        super().__init__()
        hidden = c['hidden_size']
        self.heads, self.kv_heads, self.width = c['num_attention_heads'], c['num_key_value_heads'], c['head_dim']
        self.q_proj = linear(hidden, 2 * self.heads * self.width)
        self.k_proj, self.v_proj = linear(hidden, self.kv_heads * self.width), linear(hidden, self.kv_heads * self.width)
        self.o_proj = linear(self.heads * self.width, hidden)
        self.q_norm, self.k_norm = RMSNorm(self.width), RMSNorm(self.width)
        self.indexer = Indexer(c)

    def forward(self, x, cos, sin, dense):
        """dense: bool tensor [1]; true attends to every earlier token. -> output, indexer loss."""
        batch, steps, _ = x.shape
        q, gate = self.q_proj(x).view(batch, steps, self.heads, 2 * self.width).chunk(2, -1)
        q = rotate(self.q_norm(q), cos, sin)
        k = rotate(self.k_norm(self.k_proj(x).view(batch, steps, self.kv_heads, self.width)), cos, sin)
        v = self.v_proj(x).view(batch, steps, self.kv_heads, self.width)
        group = self.heads // self.kv_heads
        k, v = k.repeat_interleave(group, 2), v.repeat_interleave(group, 2)
        kind = v.dtype                               # bf16 under autocast
        q, k, v = (y.transpose(1, 2).to(kind) for y in (q, k, v))

        # The choice of blocks passes no gradient, so the indexer learns from the attention itself, with its input cut off.
        scores, complete = self.indexer(x.detach(), cos, sin)
        loss = self.indexer_loss(q, k, scores, complete) if self.training else scores.new_zeros(())
        mask = self.visible(scores.detach(), complete) | dense
        positions = torch.arange(steps, device=x.device)
        mask = mask & (positions[None] <= positions[:, None])
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], scale=self.width ** -0.5)
        out = out.transpose(1, 2) * torch.sigmoid(gate)
        return self.o_proj(out.reshape(batch, steps, -1)), loss

    def visible(self, scores, complete):
        """[B, T, T]: keys of the chosen blocks and of the incomplete last block."""
        steps, blocks, ratio = complete.shape[0], complete.shape[1], self.indexer.ratio
        chosen = scores.masked_fill(~complete, float('-inf')).topk(min(self.indexer.budget, blocks), -1).indices
        mask = torch.zeros_like(scores, dtype=torch.bool).scatter(-1, chosen, True) & complete
        mask = F.pad(mask.repeat_interleave(ratio, -1), (0, steps - blocks * ratio))
        positions = torch.arange(steps, device=scores.device)
        return mask | (positions[None] >= ((positions[:, None] + 1) // ratio) * ratio)

    def indexer_loss(self, q, k, scores, complete):
        """Mean KL from dense attention's mass per block to the softmax of the scores, on a quarter of the sequences."""
        part = max(1, q.shape[0] // 4)
        steps, blocks, ratio = complete.shape[0], complete.shape[1], self.indexer.ratio
        with torch.no_grad():
            positions = torch.arange(steps, device=q.device)
            weights = torch.matmul(q[:part], k[:part].transpose(2, 3)).float() * self.width ** -0.5
            weights = weights.masked_fill(positions[None] > positions[:, None], float('-inf')).softmax(-1).mean(1)
            mass = weights[..., :blocks * ratio].reshape(part, steps, blocks, ratio).sum(-1) * complete
            mass = mass / mass.sum(-1, keepdim=True).clamp_min(1e-9)
        log_scores = scores[:part].masked_fill(~complete, -1e9).log_softmax(-1)
        divergence = (mass * (mass.clamp_min(1e-9).log() - log_scores)).sum(-1)
        return divergence[:, 2 * ratio:].mean()      # the first blocks leave no choice


class MLP(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.gate_proj, self.up_proj, self.down_proj = linear(hidden, inner), linear(hidden, inner), linear(inner, hidden)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Experts(nn.Module):
    def __init__(self, experts, hidden, inner):
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, hidden))
        self.down_proj = nn.Parameter(torch.empty(experts, hidden, inner))

    def forward(self, x, weights):
        """x [N, H], weights [N, E], zero where the expert was not chosen."""
        experts, hidden, inner = self.down_proj.shape
        gate_up = F.linear(x, self.gate_up_proj.reshape(-1, hidden)).view(-1, experts, 2 * inner)
        h = F.silu(gate_up[..., :inner]) * gate_up[..., inner:] * weights[..., None].to(gate_up.dtype)
        return F.linear(h.reshape(-1, experts * inner), self.down_proj.permute(1, 0, 2).reshape(hidden, -1))


class Router(nn.Module):
    def __init__(self, experts, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, hidden))


class MixtureOfExperts(nn.Module):
    def __init__(self, c):
        super().__init__()
        hidden = c['hidden_size']
        self.count, self.chosen = c['num_experts'], c['num_experts_per_tok']
        self.gate = Router(self.count, hidden)
        self.experts = Experts(self.count, hidden, c['moe_intermediate_size'])
        self.shared_expert = MLP(hidden, c['shared_expert_intermediate_size'])
        self.shared_expert_gate = linear(hidden, 1)

    def forward(self, x):
        """-> output, balance loss, share of tokens that use each expert [E]."""
        shape = x.shape
        x = x.reshape(-1, shape[-1])
        with torch.autocast(x.device.type, enabled=False):
            logits = F.linear(x.float(), self.gate.weight)
        p = logits.softmax(-1)
        top, ids = p.topk(self.chosen, -1)
        weights = torch.zeros_like(p).scatter(-1, ids, top / top.sum(-1, keepdim=True))
        load = (weights > 0).float().mean(0)
        balance = self.count * (load * p.mean(0)).sum() / self.chosen + 1e-4 * logits.logsumexp(-1).pow(2).mean()
        out = self.experts(x, weights) + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return out.reshape(shape), balance, load.detach()


class HyperConnection(nn.Module):
    """Reads one block input out of the S streams, and says how strongly each stream takes the block's output."""

    def __init__(self, c, injects=True):
        super().__init__()
        self.streams, self.hidden = c['hc_count'], c['hidden_size']
        width, rank = self.streams * self.hidden, c['hc_lowrank']
        self.hc_norm = RMSNorm(width, self.hidden)
        self.input_mix_weight_down, self.input_mix_weight_up = linear(width, rank), linear(rank, width)
        self.block_inject_weight = linear(width, self.streams) if injects else None

    def forward(self, x):
        normed = self.hc_norm(x)
        gate = self.input_mix_weight_up(F.silu(self.input_mix_weight_down(normed) / self.streams)).float()
        mixed = (torch.sigmoid(gate) * normed).unflatten(-1, (self.streams, self.hidden)).mean(-2)
        if self.block_inject_weight is None:
            return mixed
        return mixed, 2 * torch.sigmoid(self.block_inject_weight(normed).float() / self.streams)


def inject(x, block, strength):
    """Adds the block's output [B, T, H] to every stream of x [B, T, S * H], times strength [B, T, S]."""
    return x + (block[..., None, :] * strength[..., None]).flatten(-2)


MASK64 = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def splitmix64(value):
    value = (value + GOLDEN) & MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return (value ^ (value >> 31)) & MASK64


def primes_from(start, count):
    found, n = [], start
    while len(found) < count:
        if n > 1 and all(n % d for d in range(2, int(n ** 0.5) + 1)):
            found.append(n)
        n += 1
    return found


class NGramEmbedding(nn.Module):
    """Hashed embeddings of the last 2 and 3 tokens; an n-gram does not reach back over an end-of-text token."""

    def __init__(self, c):
        super().__init__()
        self.size, self.heads, self.end = c['ngram_size'], c['heads_per_ngram'], c['eos_token_id']
        heads = (self.size - 1) * self.heads
        sizes = primes_from(c['ngram_vocab_size_base'], heads)
        half = max(1, ((1 << 63) - 1) // max(c['vocab_size'], 1) // 2)
        multipliers = [2 * (splitmix64((c['seed'] + GOLDEN * (i + 1)) & MASK64) % half) + 1 for i in range(self.size)]
        self.register_buffer('layer_multipliers', torch.tensor(multipliers))
        self.register_buffer('ngram_heads_vocab_sizes', torch.tensor(sizes))
        self.register_buffer('ngram_heads_offsets', torch.tensor([sum(sizes[:i]) for i in range(heads)]))
        unit = c['make_ngram_vocab_size_divisible_by']
        self.ngram_embedding = nn.Embedding(math.ceil(sum(sizes) / unit) * unit, c['ple_embed_dim'] // heads)

    def rows(self, ids):
        """Rows of the table for every token, [B, T, heads]."""
        batch, steps = ids.shape
        positions = torch.arange(steps, device=ids.device)
        ends = torch.where(ids == self.end, positions, -1).cummax(1).values
        previous_end = torch.cat([ends.new_full((batch, 1), -1), ends[:, :-1]], 1)
        reach = positions[None] - previous_end - 1   # how many tokens back the n-gram may look
        shifted = [ids]
        for back in range(1, self.size):
            moved = torch.cat([ids.new_full((batch, back), self.end), ids[:, :-back]], 1)
            shifted.append(torch.where(reach >= back, moved, torch.full_like(moved, self.end)))
        out, mixed = [], shifted[0] * self.layer_multipliers[0]
        for n in range(1, self.size):
            mixed = mixed ^ (shifted[n] * self.layer_multipliers[n])
            heads = slice((n - 1) * self.heads, n * self.heads)
            out.append(torch.remainder(mixed[..., None], self.ngram_heads_vocab_sizes[heads]) + self.ngram_heads_offsets[heads])
        return torch.cat(out, -1)


class PerLayerEmbedding(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.hidden, self.streams = c['hidden_size'], c['hc_count']
        width = self.hidden * self.streams
        self.ple_embedding = NGramEmbedding(c)
        self.key_proj, self.value_proj = linear(c['ple_embed_dim'], width), linear(c['ple_embed_dim'], self.hidden)
        self.norm_key, self.norm_query, self.norm_conv = (RMSNorm(width, self.hidden) for _ in range(3))
        self.conv1d = CausalConv(width, c['ple_conv_kernel_size'], c['ngram_size'])

    def forward(self, x, rows):
        embedded = self.ple_embedding.ngram_embedding(rows).flatten(-2)
        key = self.norm_key(self.key_proj(embedded)).unflatten(-1, (self.streams, self.hidden))
        query = self.norm_query(x).unflatten(-1, (self.streams, self.hidden))
        value = self.value_proj(embedded).float()
        gate = (key * query).sum(-1, keepdim=True) / math.sqrt(self.hidden)
        gate = gate.abs().clamp_min(1e-6).sqrt() * gate.sign()
        gated = (torch.sigmoid(gate) * value[..., None, :]).flatten(-2)
        return gated + self.conv1d(self.norm_conv(gated))


class Layer(nn.Module):
    def __init__(self, c, index):
        super().__init__()
        self.is_linear = c['layer_types'][index] == 'linear_attention'
        if self.is_linear:
            self.linear_attn = GatedDeltaNet(c)
        else:
            self.self_attn = SparseAttention(c)
        self.mlp = MixtureOfExperts(c)
        self.ple = PerLayerEmbedding(c) if index + 1 in c['ple_layer_ids'] else None
        self.attn_hyper_connection, self.mlp_hyper_connection = HyperConnection(c), HyperConnection(c)
        self.dropout = c.get('dropout', 0.0)

    def forward(self, x, cos, sin, rows, dense):
        """-> residual, balance loss, expert load [E], indexer loss."""
        if self.ple is not None:
            x = x + self.ple(x, rows)
        h, strength = self.attn_hyper_connection(x)
        if self.is_linear:
            h, indexer_loss = self.linear_attn(h), x.new_zeros(())
        else:
            h, indexer_loss = self.self_attn(h, cos, sin, dense)
        x = inject(x, F.dropout(h.float(), self.dropout, self.training), strength)
        h, strength = self.mlp_hyper_connection(x)
        h, balance, load = self.mlp(h)
        x = inject(x, F.dropout(h.float(), self.dropout, self.training), strength)
        return x, balance, load, indexer_loss


class Decoder(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c['vocab_size'], c['hidden_size'])
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c['num_hidden_layers']))
        self.hyper_connection_mixer = HyperConnection(c, injects=False)


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.config = c
        self.model = Decoder(c)
        self.lm_head = linear(c['hidden_size'], c['vocab_size'])
        self.lm_head.weight = self.model.embed_tokens.weight
        rope = c['rope_parameters']
        rotated = int(c['head_dim'] * rope['partial_rotary_factor'])
        frequency = rope['rope_theta'] ** (-torch.arange(0, rotated, 2).float() / rotated)
        angle = torch.arange(c['max_position_embeddings']).float()[:, None] * frequency[None]
        angle = torch.cat((angle, angle), -1)
        self.register_buffer('cos', angle.cos(), persistent=False)
        self.register_buffer('sin', angle.sin(), persistent=False)

    def forward(self, ids, dense=None):
        """-> hidden [B, T, H], balance loss, expert load [layers, E], indexer loss (summed over its layers)."""
        c, steps = self.config, ids.shape[1]
        dense = torch.zeros(1, dtype=torch.bool, device=ids.device) if dense is None else dense
        x = F.dropout(self.model.embed_tokens(ids), c.get('dropout', 0.0), self.training).repeat(1, 1, c['hc_count']).float()
        balances, loads, indexer_losses = [], [], []
        for layer in self.model.layers:
            rows = layer.ple.ple_embedding.rows(ids) if layer.ple is not None else None
            x, balance, load, indexer_loss = layer(x, self.cos[:steps], self.sin[:steps], rows, dense)
            balances.append(balance)
            loads.append(load)
            indexer_losses.append(indexer_loss)
        return self.model.hyper_connection_mixer(x), torch.stack(balances).mean(), torch.stack(loads), torch.stack(indexer_losses).sum()

    def logits(self, ids):
        return self.lm_head(self(ids)[0])


@torch.no_grad()
def initialise(model, seed=0):
    """Weights at the start of training; blocks start small so that the residual streams begin as the embedding."""
    generator = torch.Generator().manual_seed(seed)
    normal = lambda p, scale: torch.randn(p.shape, generator=generator) * scale
    uniform = lambda p: torch.rand(p.shape, generator=generator)
    depth = 1 / math.sqrt(2 * model.config['num_hidden_layers'])
    for name, p in model.named_parameters():
        if name.endswith('embed_tokens.weight'):
            p.copy_(normal(p, 0.03))
        elif 'ngram_embedding' in name:
            p.copy_(normal(p, 0.05))
        elif name.endswith('A_log'):
            p.copy_(torch.log(uniform(p) * 7.9 + 0.1))
        elif name.endswith('dt_bias'):
            step = torch.exp(uniform(p) * math.log(100) + math.log(0.001))      # 0.001 to 0.1
            p.copy_(step + torch.log(-torch.expm1(-step)))                      # inverse softplus
        elif 'ple.conv1d' in name:
            p.zero_()
        elif 'conv1d' in name:
            p.copy_(normal(p, 0.3))
        elif p.ndim == 1:
            pass                                     # norms keep theirs
        elif name.endswith('experts.down_proj'):
            p.copy_(normal(p, 0.4 * depth))
        elif name.endswith(('out_proj.weight', 'o_proj.weight', 'down_proj.weight')):
            p.copy_(normal(p, depth / math.sqrt(p.shape[-1])))
        elif 'block_inject' in name or 'input_mix' in name:
            p.copy_(normal(p, 0.02))
        elif 'mlp.gate.weight' in name:
            p.copy_(normal(p, 0.03))
        else:
            p.copy_(normal(p, 0.7 / math.sqrt(p.shape[-1])))
