"""convert.py LLAMA_CPP MODEL_DIR OUT.gguf: llama.cpp's converter with two things put right for this model.

- The converter knows tokenizers by a hash of what they produce, which no new vocabulary can match: this one splits text as Qwen2's does.
- It reads the configuration through transformers, which renames "full_attention" to "indexed_attention"; the converter then writes
  compress ratios that are all 0, and engines run dense attention without a word. The name is put back.

LLAMA_CPP is a checkout of llama.cpp.
"""

import os
import runpy
import sys


def main():
    llama_cpp, model, out = sys.argv[1:]
    sys.path[:0] = [llama_cpp, os.path.join(llama_cpp, 'gguf-py')]
    from conversion import base
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: 'qwen2'
    load = base.ModelBase.load_hparams

    def load_with_full_attention(*args):
        settings = load(*args)
        settings['layer_types'] = ['full_attention' if kind == 'indexed_attention' else kind for kind in settings['layer_types']]
        return settings

    base.ModelBase.load_hparams = staticmethod(load_with_full_attention)
    sys.argv = ['convert_hf_to_gguf.py', model, '--outtype', 'f32', '--outfile', out, '--no-nextn', '--model-name', 'Argon tiny']
    runpy.run_path(os.path.join(llama_cpp, 'convert_hf_to_gguf.py'), run_name='__main__')


if __name__ == '__main__':
    main()
