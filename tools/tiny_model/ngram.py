"""ngram.py DATA SPLIT: the baseline, an interpolated Kneser-Ney trigram on the same tokens (one discount per order, n1 / (n1 + 2 n2)).

Prints nats per token, perplexity and bits per byte on the validation or test split.
"""

import json
import math
import sys

import numpy as np


class Counts:
    """Sorted n-gram codes with counts, and per context (code // vocabulary) the total and the number of continuations."""

    def __init__(self, codes, vocabulary):
        self.codes, self.counts = np.unique(codes, return_counts=True)
        ones, twos = (self.counts == 1).sum(), (self.counts == 2).sum()
        self.discount = ones / (ones + 2 * twos)
        contexts = self.codes // vocabulary
        self.contexts, first, self.continuations = np.unique(contexts, return_index=True, return_counts=True)
        self.totals = np.add.reduceat(self.counts, first)

    @staticmethod
    def find(sorted_codes, values, wanted):
        at = np.minimum(np.searchsorted(sorted_codes, wanted), len(sorted_codes) - 1)
        return np.where(sorted_codes[at] == wanted, values[at], 0)

    def smooth(self, codes, contexts, lower):
        """Discounted probability of each code, its context's left-over mass going to `lower`."""
        total = self.find(self.contexts, self.totals, contexts)
        kept = np.maximum(self.find(self.codes, self.counts, codes) - self.discount, 0)
        left = self.discount * self.find(self.contexts, self.continuations, contexts)
        return np.where(total > 0, (kept + left * lower) / np.maximum(total, 1), lower)


def main():
    data, split = sys.argv[1:]
    meta = json.load(open(f'{data}/meta.json'))
    size = meta['vocab']
    train = np.load(f'{data}/train.npz')['tokens'].astype(np.int64)
    text = np.fromfile(f'{data}/{split}.u16', np.uint16).astype(np.int64)

    trigrams = Counts((train[:-2] * size + train[1:-1]) * size + train[2:], size)
    bigrams = Counts(trigrams.codes % (size * size), size)           # in how many contexts a bigram occurs
    followers = np.bincount(bigrams.codes % size, minlength=size)    # after how many tokens a token occurs
    unigram = (np.maximum(followers - 0.5, 0) + 0.5 * (followers > 0).sum() / size) / followers.sum()

    before = np.concatenate([[meta['end']], text[:-2]])              # the token two back, from the second token on
    last, word = text[:-1], text[1:]
    p = unigram[word]
    p = bigrams.smooth(last * size + word, last, p)
    p = trigrams.smooth((before * size + last) * size + word, before * size + last, p)
    nats = float(-np.log(p).mean())
    print(json.dumps(dict(split=split, nats_per_token=round(nats, 4), perplexity=round(math.exp(nats), 2),
                          bits_per_byte=round(nats / math.log(2) * len(text) / meta[split]['bytes'], 4), trigrams=len(trigrams.codes))))


if __name__ == '__main__':
    main()
