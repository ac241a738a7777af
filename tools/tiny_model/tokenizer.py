"""tokenizer.py CORPUS_DIR OUT [--vocab 6144]: a byte-level BPE trained on the training split, and the tokenised splits.

The pre-tokenizer is Qwen2's, which llama.cpp knows as "qwen2". The last id is <|endoftext|>; it ends every document. Writes into OUT
  tokenizer.json, tokenizer_config.json
  train.npz        tokens (u16), first token of each document, weight of each document
  {val,test}.u16   tokens; {val,test,heldout_rust,calibration}.txt   text for llama.cpp's tools
  meta.json        counts
"""

import argparse
import json
import os
import random

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
END = '<|endoftext|>'


def train_tokenizer(texts, size):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2), 'isolated'),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=size - 1, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False))
    tokenizer.add_special_tokens([END])
    assert tokenizer.get_vocab_size() == size and tokenizer.token_to_id(END) == size - 1
    return tokenizer


def encode(tokenizer, documents, end):
    """Tokens of all documents in a row, and where each begins."""
    ids, starts = [], []
    for first in range(0, len(documents), 500):
        for encoded in tokenizer.encode_batch([d['text'] for d in documents[first:first + 500]]):
            starts.append(sum(map(len, ids)) if not ids else starts[-1] + len(ids[-1]))
            ids.append(np.array(encoded.ids + [end], np.uint16))
    return np.concatenate(ids), np.array(starts, np.int64)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('corpus')
    parser.add_argument('out')
    parser.add_argument('--vocab', type=int, default=6144)
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)

    documents = [json.loads(line) for line in open(f'{args.corpus}/corpus.jsonl')]
    split = {name: [d for d in documents if d['split'] == name] for name in ('train', 'val', 'test')}
    tokenizer = train_tokenizer((d['text'] for d in split['train']), args.vocab)
    tokenizer.save(f'{args.out}/tokenizer.json')
    end = args.vocab - 1
    with open(f'{args.out}/tokenizer_config.json', 'w') as out:
        json.dump(dict(tokenizer_class='PreTrainedTokenizerFast', eos_token=END, pad_token=END, bos_token=None,
                       add_bos_token=False, clean_up_tokenization_spaces=False), out)

    meta = dict(vocab=args.vocab, end=end)
    for name, chosen in split.items():
        tokens, starts = encode(tokenizer, chosen, end)
        meta[name] = dict(documents=len(chosen), tokens=len(tokens), bytes=sum(len(d['text'].encode()) for d in chosen))
        if name == 'train':
            np.savez(f'{args.out}/train.npz', tokens=tokens, starts=starts, weights=np.array([d['weight'] for d in chosen], np.int8))
            continue
        tokens.tofile(f'{args.out}/{name}.u16')
        open(f'{args.out}/{name}.txt', 'w').write('\n\n'.join(d['text'] for d in chosen))
    sample = random.Random(0).sample([d for d in split['train'] if len(d['text']) < 20_000], 150)
    open(f'{args.out}/calibration.txt', 'w').write('\n\n'.join(d['text'] for d in sample))
    meta['bytes_per_token'] = round(meta['train']['bytes'] / meta['train']['tokens'], 3)
    json.dump(meta, open(f'{args.out}/meta.json', 'w'), indent=1)
    print(meta)


if __name__ == '__main__':
    main()
