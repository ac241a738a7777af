"""train.py DATA OUT: trains model.py on DATA (written by tokenizer.py) for a given number of seconds.

The learning-rate schedule follows the clock, so the run ends on time on any machine. OUT receives checkpoint.N.npz (f16 parts below
16 MB each, rewritten now and then) and log.json. An error during an evaluation is written to the log and training goes on; a run
whose loss has not come down by step 300 stops at once with exit code 3, so that another setting can use the time.
"""

import argparse
import json
import math
import os
import sys
import time
import traceback

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

import gated_delta
from model import Model, initialise
from optimiser import Optimiser

PART_BYTES = 14_500_000
WARM_UP_STEPS = 150
CONSTANT_UNTIL = 0.25        # share of the run at the full learning rate; afterwards it falls linearly
FINAL_RATE = 0.01            # of the full rate
HOPELESS = 5.6               # training loss in nats per token at step 300
INDEXER_WEIGHT = 0.05        # of the indexer losses' sum


class Log:
    def __init__(self, out, settings):
        self.path, self.settings, self.entries, self.start = f'{out}/log.json', settings, [], time.time()

    def __call__(self, **entry):
        entry = dict(t=round(time.time() - self.start, 1), **entry)
        self.entries.append(entry)
        print(json.dumps(entry), flush=True)
        with open(self.path, 'w') as out:
            json.dump(dict(**self.settings, log=self.entries), out)


def batches(data, batch, window, device, seed):
    """Endless (inputs, targets, epoch): all documents in a new order each epoch, in windows of equal length."""
    tokens, starts, weights = data['tokens'], data['starts'], data['weights']
    ends = np.append(starts[1:], len(tokens))
    order = np.repeat(np.arange(len(starts)), weights)
    rng = np.random.default_rng(seed)
    epoch = 0
    while True:
        order = rng.permutation(order)
        stream = np.concatenate([tokens[starts[i]:ends[i]] for i in order])[rng.integers(0, window):]
        count = (len(stream) - 1) // window
        stream = torch.from_numpy(stream.astype(np.int32)).to(device)
        first = torch.from_numpy(rng.permutation(count)).to(device) * window
        for i in range(0, count - batch + 1, batch):
            rows = stream[first[i:i + batch, None] + torch.arange(window + 1, device=device)[None]].long()
            yield rows[:, :-1], rows[:, 1:], epoch + i / count
        epoch += 1


def text_loss(hidden, weight, targets):
    return F.cross_entropy(F.linear(hidden, weight).float().flatten(0, 1), targets.flatten())


@torch.no_grad()
def evaluate(model, tokens, window, batch=16):
    """-> nats per token, share of tokens that use each expert [layers, E]."""
    model.eval()
    count = (len(tokens) - 1) // window
    inputs = tokens[:count * window].view(count, window).long()
    targets = tokens[1:count * window + 1].view(count, window).long()
    total, load = 0.0, 0
    for i in range(0, count, batch):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16):
            hidden, _, part, _ = model(inputs[i:i + batch])
            total += float(text_loss(hidden, model.lm_head.weight, targets[i:i + batch])) * len(inputs[i:i + batch])
        load = load + part * len(inputs[i:i + batch])
    model.train()
    return total / count, load / count


def save(model, out):
    state = {k: v.detach() for k, v in model.state_dict().items() if k != 'lm_head.weight'}
    state = {k: (v.half() if v.is_floating_point() and v.ndim > 1 else v).cpu().numpy() for k, v in state.items()}
    parts, size = [{}], 0
    for name in sorted(state):
        if size + state[name].nbytes > PART_BYTES and parts[-1]:
            parts.append({})
            size = 0
        parts[-1][name] = state[name]
        size += state[name].nbytes
    for i, part in enumerate(parts):
        np.savez(f'{out}/checkpoint.{i}.npz.new', **part)
    for i in range(len(parts)):                      # all written before any is replaced
        os.replace(f'{out}/checkpoint.{i}.npz.new.npz', f'{out}/checkpoint.{i}.npz')


def rate(progress, step):
    fall = min(1.0, max(0.0, (progress - CONSTANT_UNTIL) / (1 - CONSTANT_UNTIL)))
    return min(1.0, (step + 1) / WARM_UP_STEPS) * (1 - (1 - FINAL_RATE) * fall)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('data')
    parser.add_argument('out')
    parser.add_argument('--config', default=os.path.join(os.path.dirname(os.path.abspath(__file__)), 'config.json'))
    parser.add_argument('--deadline', type=float, default=540, help='seconds from start to the last step, compilation included')
    parser.add_argument('--batch', type=int, default=48)
    parser.add_argument('--window', type=int, default=1024)
    parser.add_argument('--lr', type=float, default=3e-3)
    parser.add_argument('--weight-decay', type=float, default=0.3)
    parser.add_argument('--dropout', type=float, default=0.1)
    parser.add_argument('--dense-until', type=float, default=0.2, help='share of the run with attention to every token')
    parser.add_argument('--evaluations', type=int, default=12)
    parser.add_argument('--saves', type=int, default=4)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--max-steps', type=int, default=10**9)
    parser.add_argument('--device', default='cuda')
    parser.add_argument('--no-compile', action='store_true')
    parser.add_argument('--no-muon', action='store_true')
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    config = json.load(open(args.config))
    log = Log(args.out, dict(arguments=vars(args), config=config))
    device = args.device
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision('high')
    if device == 'cuda':
        torch.backends.cuda.enable_cudnn_sdp(False)  # its masked variant is not needed
        error = gated_delta.check(device)
        log(gated_delta_error=f'{error:.1e}', gpu=torch.cuda.get_device_name())
        assert error < 1e-5, error

    meta = json.load(open(f'{args.data}/meta.json'))
    data = dict(np.load(f'{args.data}/train.npz'))
    held_out = torch.from_numpy(np.fromfile(f'{args.data}/val.u16', np.uint16).astype(np.int32)).to(device)
    model = Model(dict(config, dropout=args.dropout))
    initialise(model, args.seed)
    model = model.to(device).train()
    optimiser = Optimiser(model, args.weight_decay, muon=not args.no_muon)
    stream = batches(data, args.batch, args.window, device, args.seed)
    loss_function = text_loss
    if not args.no_compile:
        torch._dynamo.config.cache_size_limit = 64
        for layer in model.model.layers:
            layer.compile(dynamic=False)
        loss_function = torch.compile(text_loss, dynamic=False)
    log(parameters=sum(p.numel() for p in model.parameters()), train_tokens=len(data['tokens']))

    def gradients(dense):
        inputs, targets, epoch = next(stream)
        with torch.autocast(device, dtype=torch.bfloat16):
            hidden, balance, load, indexer = model(inputs, torch.full((1,), dense, device=device))
            text = loss_function(hidden, model.lm_head.weight, targets)
        optimiser.zero_grad()
        (text + config['router_aux_loss_coef'] * balance + INDEXER_WEIGHT * indexer).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        return dict(text=text.detach(), balance=balance.detach(), indexer=indexer.detach(), load=load, norm=norm, epoch=epoch)

    def measure(**extra):
        try:
            with torch.compiler.set_stance('force_eager'):
                loss, load = evaluate(model, held_out, args.window)
            load = load.float().cpu().numpy() * config['num_experts'] / config['num_experts_per_tok']
            bits = loss * meta['val']['tokens'] / math.log(2) / meta['val']['bytes']
            log(**extra, val=round(loss, 4), bits_per_byte=round(bits, 4), unused=int((load == 0).sum()),
                least=[round(float(x), 2) for x in load.min(1)], most=[round(float(x), 2) for x in load.max(1)])
        except Exception:                            # a failed measurement must not end the training
            log(**extra, evaluation_error=traceback.format_exc()[-1500:])
            model.train()

    gradients(True)                                  # compiles; changes no weight
    measure(event='compiled')
    begin, step, evaluated, saved, recent = time.time(), 0, 0, 0, []
    budget = args.deadline - (begin - log.start)
    while True:
        progress = max((time.time() - begin) / budget, step / args.max_steps)
        if progress >= 1:
            break
        lr = args.lr * rate(progress, step)
        result = gradients(progress < args.dense_until)
        optimiser.step(lr)
        step += 1
        recent.append(result['text'])
        if step % 8 == 0 and device == 'cuda':
            recent[-1].item()                        # keeps the clock honest: the queue stays short
        if step == 300 and not float(torch.stack(recent).mean()) < HOPELESS:
            log(event='hopeless', step=step, train=round(float(torch.stack(recent).mean()), 4))
            sys.exit(3)
        if step in (10, 50, 200) or progress * args.evaluations >= evaluated + 1:
            train = float(torch.stack(recent).mean())
            recent = []
            seconds = time.time() - begin
            facts = dict(step=step, progress=round(progress, 3), epoch=round(result['epoch'], 2), lr=f'{lr:.2e}', train=round(train, 4),
                         tokens_per_second=round(step * args.batch * args.window / seconds),
                         **{k: round(float(result[k]), 4) for k in ('balance', 'indexer', 'norm')})
            if progress * args.evaluations >= evaluated + 1:
                evaluated += 1
                measure(**facts)
            else:
                memory = torch.cuda.max_memory_allocated() / 2**30 if device == 'cuda' else 0
                log(**facts, memory_gib=round(memory, 1))
        if progress * args.saves >= saved + 1:
            saved += 1
            save(model, args.out)
    save(model, args.out)
    measure(event='final', step=step, epoch=round(result['epoch'], 2), seconds=round(time.time() - begin, 1),
            tokens=step * args.batch * args.window)


if __name__ == '__main__':
    main()
