"""finish.py QUANTISED.gguf OUT.gguf: the same tensors, with what `argon run` uses by default for this model written into the metadata.

  argon.default_prompt                                   string
  argon.default_seed                                     u32
  general.sampling.temp, top_p, min_p, penalty_repeat    f32, llama.cpp's spelling
  general.sampling.top_k, penalty_last_n                 i32
"""

import sys

import gguf

DEFAULT_PROMPT = 'In this chapter, we will look at how a program uses memory.'
DEFAULT_SEED = 5
SAMPLING = dict(temp=0.6, top_k=40, top_p=0.95, min_p=0.05, penalty_repeat=1.1, penalty_last_n=64)
TEXT = {
    'general.description': 'A complete, very small qwen4exp trained on permissively licensed technical documentation; '
                           'it shows that an engine works and does not answer questions.',
    'general.license': 'MIT OR Apache-2.0',
}
LEFT_OUT = ('general.architecture', 'quantize.imatrix.file')


def main():
    source, target = sys.argv[1:]
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.fields['general.architecture'].contents())
    for field in reader.fields.values():
        if field.name.startswith('GGUF.') or field.name in LEFT_OUT or field.name in TEXT:
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for name, value in TEXT.items():
        writer.add_string(name, value)
    for name, value in SAMPLING.items():
        add = writer.add_int32 if isinstance(value, int) else writer.add_float32
        add(f'general.sampling.{name}', value)
    writer.add_array('general.languages', ['en'])
    writer.add_string('argon.default_prompt', DEFAULT_PROMPT)
    writer.add_uint32('argon.default_seed', DEFAULT_SEED)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_shape=tensor.data.shape, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == '__main__':
    main()
