"""reference.py MODEL.gguf TOKENS.u16 LOGITS_PROGRAM OUT: what llama.cpp computes for MODEL on 200 tokens, weights expanded to F32.

Writes into OUT the twin MODEL.f32.gguf (every tensor dequantised and stored as F32, metadata kept), tokens.json, argmax.json,
logits.npy [200, vocabulary] and reference.json (tokens and argmax together). LOGITS_PROGRAM is logits.cpp, compiled.
"""

import json
import pathlib
import subprocess
import sys

import gguf
import numpy as np
from gguf.quants import dequantize

COUNT = 200


def expand(source, target):
    """A copy of a GGUF file with all tensors as F32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields['general.architecture'].contents())
    for field in reader.fields.values():
        if field.name.startswith('GGUF.') or field.name in ('general.architecture', 'general.file_type'):
            continue
        kind = field.types[0]
        item = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, item)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, dequantize(tensor.data, tensor.tensor_type).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    model, tokens_file, program, out = sys.argv[1:]
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    twin = out / (pathlib.Path(model).stem + '.f32.gguf')
    expand(model, twin)
    tokens = np.fromfile(tokens_file, np.uint16)[:COUNT].tolist()
    (out / 'tokens.txt').write_text(' '.join(map(str, tokens)))
    subprocess.run([program, twin, out / 'tokens.txt', out / 'logits.f32'], check=True, stderr=subprocess.DEVNULL)
    logits = np.fromfile(out / 'logits.f32', np.float32).reshape(COUNT, -1)
    (out / 'logits.f32').unlink()
    np.save(out / 'logits.npy', logits)
    argmax = logits.argmax(1).tolist()
    (out / 'tokens.json').write_text(json.dumps(tokens))
    (out / 'argmax.json').write_text(json.dumps(argmax))
    top = np.sort(logits, 1)
    note = ('llama.cpp b11434 on the F32 twin of argon-tiny.gguf (every weight dequantised), F32 cache, flash attention off, one batch: '
            'argmax[i] is the best next token after tokens[0..=i]. Made by tools/tiny_model/reference.py from the test split.')
    (out / 'reference.json').write_text(json.dumps(dict(note=note, tokens=tokens, argmax=argmax)) + '\n')
    print(f'{len(tokens)} tokens; smallest lead of the best token over the next: {float((top[:, -1] - top[:, -2]).min()):.4f}')


if __name__ == '__main__':
    main()
