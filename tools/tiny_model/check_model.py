"""check_model.py [CONFIG]: logits of model.py against transformers' Qwen4ExpForCausalLM on the same random weights (CPU, f32)."""

import json
import sys

import torch
import transformers

import model as ours


def to_transformers(state, config):
    """transformers' model with the given weights."""
    settings = {k: v for k, v in config.items() if k not in ('dropout', 'architectures', 'model_type')}
    settings = transformers.Qwen4ExpForCausalLM.config_class(**settings)
    settings._attn_implementation = 'eager'
    settings._experts_implementation = 'eager'
    theirs = transformers.Qwen4ExpForCausalLM(settings).eval().float()
    result = theirs.load_state_dict(state, strict=False)
    missing = [k for k in result.missing_keys if k != 'lm_head.weight']
    assert not missing and not result.unexpected_keys, (missing, result.unexpected_keys)
    theirs.tie_weights()
    return theirs


def main():
    config = json.load(open(sys.argv[1] if len(sys.argv) > 1 else 'config.json'))
    model = ours.Model(config).eval()
    ours.initialise(model, seed=1)
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():                            # make every part matter
        for name, p in model.named_parameters():
            if 'ple.conv1d' in name:
                p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
            elif 'norm' in name:
                p.add_(torch.randn(p.shape, generator=generator) * 0.1)
            elif any(part in name for part in ('index_qk', 'block_inject', 'input_mix', 'mlp.gate.weight')):
                p.mul_(5)
    theirs = to_transformers(model.state_dict(), config)
    ids = torch.randint(0, config['vocab_size'] - 1, (1, 203), generator=generator)
    ids[0, 50] = ids[0, 51] = ids[0, 130] = config['eos_token_id']
    with torch.no_grad():
        have, want = model.logits(ids), theirs(input_ids=ids, use_cache=False).logits
        dense = model.lm_head(model(ids, torch.ones(1, dtype=torch.bool))[0])
    relative = lambda a, b: float((a - b).norm() / b.norm())
    print(f'parameters {sum(p.numel() for p in model.parameters())}')
    print(f'relative difference {relative(have, want):.1e}, before the budget is full {relative(have[:, :128], want[:, :128]):.1e}')
    print(f'dense attention instead of the selection: {relative(dense, want):.1e}')
    assert relative(have[:, :128], want[:, :128]) < 1e-5
    assert relative(have, want) < 5e-3               # past the budget, equal scores may be chosen in another order


if __name__ == '__main__':
    main()
