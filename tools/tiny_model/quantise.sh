#!/bin/bash
# quantise.sh F32.gguf CALIBRATION.txt OUT.gguf [EXPERT_TYPE] [BASE_TYPE] [EMBEDDING_TYPE]
#
# Gate and up experts in EXPERT_TYPE, down experts in IQ4_NL (their rows of 32 fit no super-block), the rest in BASE_TYPE.
# llama.cpp keeps router, norms, convolutions and indexer in F32. Needs llama-imatrix and llama-quantize on the PATH; one thread,
# because with so small a model the threads of ggml mostly wait for one another.
set -eu
f32=$1 calibration=$2 out=$3 expert=${4:-q3_K} base=${5:-Q5_K} embedding=${6:-q5_K}
imatrix=${f32%.gguf}.imatrix.gguf
[ -e "$imatrix" ] || llama-imatrix -m "$f32" -f "$calibration" -o "$imatrix" -c 512 --chunks 200 -t 1 --no-ppl
llama-quantize --imatrix "$imatrix" --token-embedding-type "$embedding" \
    --tensor-type ffn_gate_exps="$expert" --tensor-type ffn_up_exps="$expert" --tensor-type ffn_down_exps=iq4_nl \
    --tensor-type per_layer_token_embd=iq4_nl --tensor-type 'hc_.*_up=iq4_nl' "$f32" "$out" "$base" 1
