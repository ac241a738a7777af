"""corpus.py ROOT OUT --rust RUST_HTML: documentation pages -> clean text, split by document.

ROOT holds the packages unpacked by fetch.py; RUST_HTML is the share/doc/rust/html folder of a Rust toolchain. Writes into OUT
  corpus.jsonl   one document a line: source, path, split (train, val, test), weight, text
  stats.json     bytes and documents per source and split, with licence and package version

A paragraph is kept once in the whole corpus: its key ignores digits, white space and the names of integer types. The test split
holds the Rust pages of heldout_rust.txt (pages that the first embedded model had not seen either) and 1 % of all other documents;
the validation split is another 1 %.
"""

import argparse
import collections
import glob
import hashlib
import json
import os
import pathlib
import re
import tomllib
from multiprocessing import Pool

import go_text
import html_text

HERE = pathlib.Path(__file__).parent

RUST_BOOKS = ['book', 'reference', 'rust-by-example', 'cargo', 'nomicon', 'rustc', 'edition-guide', 'rustdoc', 'clippy',
              'unstable-book', 'style-guide', 'error_codes']
RUST_API = ['std', 'alloc', 'core', 'proc_macro', 'test']
RUST_SKIP = re.compile(r'/(arch|simd|src)/|(print|toc|404|SUMMARY|all)\.html$|/(es|ja|ko|zh|zh-[a-z]+)/'
                       r'|/primitive\.(i8|i16|i64|i128|isize|u16|u64|u128|f16|f32|f128)\.html|/struct\.Atomic[IU](8|16|32|64|128)\.html')

INTEGER_TYPES = re.compile(r'\b(?:[iu](?:8|16|32|64|128|size)|f(?:16|32|64|128)|NonZero\w*|Atomic[IU]\w+)\b')
DIGITS = re.compile(r'\d+')
NUMBERING = re.compile(r'^((Chapter|Section|Appendix)\s+)?([0-9A-Z]+\.)*[0-9]+\.?\s+(?=[A-Z`"])')
BOILERPLATE = re.compile(
    r'^(Available Languages|Home \||« |previous \||Stability:|Added in|Source code:|Note$|Warning$|Tip$|See also$|Important$|Caution$'
    r'|New in version [\d.]+\.?$|Changed in version [\d.]+\.?$|Deprecated since|Expand description|Show hidden lines|Next|Previous'
    r'|Prev |Copyright|Last updated|Generated|Download|Table of Contents|Contents|Total running time|Examples using|Click here'
    r'|Go to the end|Bases:|Required by|This page|Edit on|Report a bug|Top$|Search|Return to|Back to|Attribute Value'
    r'|Type Default|Module Summary|Since$|OTP |View Source|Binary size|\(Inherited|Inherited)')
# Sections that hold links or names and no text.
EMPTY_SECTION = re.compile(
    r'^(see also|references?|bibliography|contents|page contents|table of contents|acknowledge?ments?|external links|index'
    r'|related topics|quick search|navigation|further reading|documented in|defined in|included modules|direct known subclasses'
    r'|(instance|class|macro|constant) (method |)summary|(class|instance|macros?|constructors?) .*inherited.*|(constructor|class method|instance method) detail'
    r'|requirements|examples using .*)$', re.I)
MIN_DOCUMENT = 400           # characters
MIN_PROSE = 0.45             # share of a document's characters that are prose
MAX_CODE_SHARE = 0.40        # code beyond this share of a document is dropped, longest samples first


def source_files(source, root, rust_html, everywhere):
    kind = source.get('kind', 'html')
    if kind == 'rust':
        found = []
        for book in RUST_BOOKS + RUST_API:
            pages = sorted(glob.glob(f'{rust_html}/{book}/**/*.html', recursive=True))
            found += [p for p in pages if not RUST_SKIP.search(p[len(rust_html):]) and os.path.getsize(p) < 3_000_000]
        return [(p, os.path.relpath(p, rust_html)) for p in found]
    include = re.compile(source.get('include', ''))
    exclude = re.compile(source['exclude']) if 'exclude' in source else None
    found = []
    for package in source['package'].split():
        base = os.path.join(root, package, source.get('root', 'usr/share/doc'))
        for path in sorted(glob.glob(f'{base}/**/*.{"go" if kind == "go" else "html"}', recursive=True)):
            relative = os.path.relpath(path, base)
            if (os.path.islink(path) or not include.search(relative) or everywhere.search(relative)
                    or (exclude and exclude.search(relative))):
                continue
            found.append((path, f'{package}/{relative}'))
    return found


def read_page(job):
    kind, path = job
    return go_text.file_blocks(path) if kind == 'go' else html_text.page_blocks(path)


def key(text):
    text = DIGITS.sub('0', INTEGER_TYPES.sub('T', html_text.SPACE.sub(' ', text)))
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def is_prose(text):
    if BOILERPLATE.match(text) or not re.search('[a-z]{3}', text):
        return False
    if text.startswith(('def ', '#', '.', '@')) or (text.count(' ') < 2 and not text.endswith((':', '.'))):
        return False
    letters = sum(c.isalpha() or c == ' ' for c in text)
    return letters >= 0.68 * len(text) and text.count('|') < 4 and max(map(len, text.split())) < 90


class Assembler:
    """Turns blocks into documents, keeping each paragraph once."""

    def __init__(self):
        self.seen = set()
        self.duplicate_bytes = 0

    def document(self, blocks):
        """The text of one page, or None when too little of it is new prose."""
        parts, headings = [], []                     # parts: (kind, text)
        explained = True                             # false while the text before a code sample was a duplicate
        skipping = False                             # inside a section that holds no text
        for kind, text in blocks:
            if kind == 'h':
                skipping = bool(EMPTY_SECTION.match(NUMBERING.sub('', text)))
                headings = [(kind, text)]
                continue
            if skipping:
                continue
            if kind == 'sig':
                headings.append((kind, text))
                continue
            text = text.removesuffix(' Source Edit').removesuffix(' Source')
            if kind != 'code' and not is_prose(text):
                explained = False
                continue
            if len(text) >= 24:
                k = key(text)
                if k in self.seen:
                    self.duplicate_bytes += len(text)
                    explained = False if kind != 'code' else explained
                    continue
                if kind == 'code' and not explained:
                    continue
                self.seen.add(k)
            elif kind != 'code' and not text.endswith(('.', ':')):
                continue
            if kind != 'code':
                explained = True
            # The heading and the last signature before kept text; a section that kept nothing leaves no heading.
            chosen = headings[:1] + (headings[-1:] if len(headings) > 1 else [])
            for heading_kind, heading in chosen:
                if heading_kind == 'sig':
                    parts.append(('sig', f'`{heading}`' if '`' not in heading else heading))
                elif len(heading) <= 100:
                    parts.append(('h', NUMBERING.sub('', heading)))
            headings = []
            parts.append((kind, text))
        return self.render(self.limit_code(parts))

    @staticmethod
    def limit_code(parts):
        prose = sum(len(t) for k, t in parts if k in ('p', 'li'))
        allowance = MAX_CODE_SHARE / (1 - MAX_CODE_SHARE) * prose
        kept, used = set(), 0
        for i in sorted((i for i, (k, _) in enumerate(parts) if k == 'code'), key=lambda i: len(parts[i][1])):
            if used + len(parts[i][1]) <= allowance:
                kept.add(i)
                used += len(parts[i][1])
        return [part for i, part in enumerate(parts) if part[0] != 'code' or i in kept]

    @staticmethod
    def render(parts):
        out, level = [], '#'
        for i, (kind, text) in enumerate(parts):
            if kind == 'h':
                text, level = f'{level} {text}', '##'
            elif kind == 'li':
                text = f'- {text}'
            elif kind == 'code':
                text = f'```\n{text}\n```'
            tight = kind == 'li' and i and parts[i - 1][0] == 'li'
            out.append(('\n' if tight else '\n\n') + text)
        text = ''.join(out).strip()
        prose = sum(len(t) for k, t in parts if k in ('p', 'li'))
        ascii_share = sum(map(str.isascii, text)) / max(1, len(text))
        if len(text) < MIN_DOCUMENT or prose < MIN_PROSE * len(text) or ascii_share < 0.98:
            return None
        return text


def split_of(name):
    slot = int.from_bytes(hashlib.blake2b(f'split:{name}'.encode(), digest_size=4).digest(), 'big') % 100
    return {0: 'val', 1: 'test'}.get(slot, 'train')


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('root')
    parser.add_argument('out')
    parser.add_argument('--rust', required=True)
    parser.add_argument('--jobs', type=int, default=2)
    args = parser.parse_args()

    table = tomllib.loads((HERE / 'sources.toml').read_text())
    everywhere = re.compile(table['exclude'])
    heldout = set((HERE / 'heldout_rust.txt').read_text().split())
    versions = json.loads(pathlib.Path(args.root, 'versions.json').read_text())

    jobs = [(s, path, name) for s in table['source'] for path, name in source_files(s, args.root, args.rust, everywhere)]
    # The pages held out for both models come first: what they say is then nowhere else.
    jobs.sort(key=lambda job: job[2] not in heldout)
    with Pool(args.jobs) as pool:
        pages = pool.map(read_page, [(s.get('kind', 'html'), path) for s, path, _ in jobs], chunksize=16)

    assembler, documents = Assembler(), []
    counts = collections.defaultdict(collections.Counter)
    for (source, _, name), blocks in zip(jobs, pages):
        count = counts[source['name']]
        count['pages'] += 1
        text = assembler.document(blocks)
        if text is None:
            continue
        split = 'test' if name in heldout else split_of(name)
        if split != 'train' and len(text) > 60_000:  # one long document would be most of a small split
            split = 'train'
        count['documents'] += 1
        count[f'{split}_bytes'] += len(text.encode())
        documents.append(dict(source=source['name'], path=name, split=split, weight=source.get('weight', 1), text=text))

    os.makedirs(args.out, exist_ok=True)
    with open(f'{args.out}/corpus.jsonl', 'w') as out:
        for document in documents:
            out.write(json.dumps(document) + '\n')
    stats = []
    for source in table['source']:
        packages = source['package'].split() if source.get('kind') != 'rust' else []
        stats.append(dict(name=source['name'], package=source['package'], licence=source['licence'],
                          version=' '.join(versions[p] for p in packages) or '1.95.0', **counts[source['name']]))
    total = collections.Counter()
    for entry in stats:
        total.update({k: v for k, v in entry.items() if isinstance(v, int)})
    with open(f'{args.out}/stats.json', 'w') as out:
        json.dump(dict(total=total, sources=stats), out, indent=1)
    for entry in stats:
        print(f"{entry['name']:24} {entry.get('pages', 0):6} pages {entry.get('documents', 0):6} kept {entry.get('train_bytes', 0):10} train bytes")
    print(dict(total), 'duplicate characters left out:', assembler.duplicate_bytes)


if __name__ == '__main__':
    main()
