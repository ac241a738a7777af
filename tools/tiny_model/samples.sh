#!/bin/bash
# samples.sh MODEL.gguf [SEED...]: continuations of a few prompts with the sampling that the file's metadata names, and greedily.
# Needs llama-completion on the PATH.
set -eu
model=$1; shift
prompts=("In this chapter, we will look at how a program uses memory." "The borrow checker" "A database transaction is"
         "To create a new project with Cargo, run" "# Memory management" "Reading a file one line at a time is simple:"
         "Every thread has its own stack, and" "When you write a program in Rust,")
complete() { llama-completion -m "$model" -n 150 -c 512 -t 1 -no-cnv --no-warmup --no-display-prompt "$@" 2>/dev/null; echo; }
for prompt in "${prompts[@]}"; do
    for seed in "${@:-5}"; do
        echo "### [default sampling, seed $seed] $prompt"
        complete -p "$prompt" --seed "$seed"
    done
    echo "### [greedy] $prompt"
    complete -p "$prompt" --temp 0 --repeat-penalty 1
done
