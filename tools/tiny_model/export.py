"""export.py CHECKPOINT_DIR DATA OUT: trained weights -> transformers' Qwen4ExpForCausalLM in OUT, the layout llama.cpp's converter reads.

Compares the logits of the trainer's model and of transformers' on validation text first; they must agree.
"""

import glob
import json
import os
import shutil
import sys

import numpy as np
import torch

import model as ours
from check_model import to_transformers


def load_checkpoint(folder):
    """-> (state dict, config)"""
    state = {}
    for part in sorted(glob.glob(f'{folder}/checkpoint.*.npz')):
        for name, value in np.load(part).items():
            tensor = torch.from_numpy(value)
            state[name] = tensor.float() if tensor.is_floating_point() else tensor
    state['lm_head.weight'] = state['model.embed_tokens.weight']
    return state, json.load(open(f'{folder}/log.json'))['config']


def main():
    checkpoint, data, out = sys.argv[1:]
    state, config = load_checkpoint(checkpoint)
    model = ours.Model(config).eval()
    print(model.load_state_dict(state))
    theirs = to_transformers(model.state_dict(), config)
    ids = torch.from_numpy(np.fromfile(f'{data}/val.u16', np.uint16)[:300].astype(np.int64))[None]
    with torch.no_grad():
        have, want = model.logits(ids), theirs(input_ids=ids, use_cache=False).logits
    print(f'relative difference {float((have - want).norm() / want.norm()):.1e}, '
          f'equal argmax {float((have.argmax(-1) == want.argmax(-1)).float().mean()):.4f}')
    assert torch.equal(have.argmax(-1), want.argmax(-1))

    shutil.rmtree(out, ignore_errors=True)
    theirs.save_pretrained(out)
    saved = json.load(open(f'{out}/config.json'))
    # transformers writes "indexed_attention" where published checkpoints say "full_attention".
    saved['layer_types'] = ['full_attention' if kind == 'indexed_attention' else kind for kind in saved['layer_types']]
    saved['architectures'] = ['Qwen4ExpForCausalLM']
    json.dump(saved, open(f'{out}/config.json', 'w'), indent=1)
    for name in ('tokenizer.json', 'tokenizer_config.json'):
        shutil.copy(f'{data}/{name}', out)
    print(sorted(os.listdir(out)))


if __name__ == '__main__':
    main()
